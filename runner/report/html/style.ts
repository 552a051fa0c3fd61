/** The page's style: light and dark by the reader's choice, colours that the colour-blind can tell apart, and paper. */
export const style = `
:root{color-scheme:light dark;--ground:#fff;--panel:#f6f7f9;--line:#d9dde3;--text:#1b1f24;--soft:#59636e;--link:#0b5cad;
--good:#11683c;--good-fill:#cdebd8;--bad:#a3211b;--bad-fill:#f8d7d3;--warn:#7a4d00;--warn-fill:#fbe6b8;--none-fill:#e6e8eb;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#8a6d00;--c5:#5b3fb5;--c6:#2b8ca3;--c7:#7f3b3b}
@media (prefers-color-scheme:dark){:root:not([data-theme=light]){--ground:#14171b;--panel:#1c2127;--line:#39414b;--text:#e8eaed;--soft:#a3adb8;--link:#7cbcff;
--good:#7fdba6;--good-fill:#173f2a;--bad:#ff9d94;--bad-fill:#541f1b;--warn:#f5c869;--warn-fill:#4a3500;--none-fill:#2d343c;
--c0:#56b4e9;--c1:#ff9147;--c2:#2fcf9f;--c3:#eba0cb;--c4:#e0c040;--c5:#a895f0;--c6:#6fd0e5;--c7:#d69a9a}}
:root[data-theme=dark]{color-scheme:dark;--ground:#14171b;--panel:#1c2127;--line:#39414b;--text:#e8eaed;--soft:#a3adb8;--link:#7cbcff;
--good:#7fdba6;--good-fill:#173f2a;--bad:#ff9d94;--bad-fill:#541f1b;--warn:#f5c869;--warn-fill:#4a3500;--none-fill:#2d343c;
--c0:#56b4e9;--c1:#ff9147;--c2:#2fcf9f;--c3:#eba0cb;--c4:#e0c040;--c5:#a895f0;--c6:#6fd0e5;--c7:#d69a9a}
:root[data-theme=light]{color-scheme:light}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
main,header.page,footer{max-width:1180px;margin:0 auto;padding:0 24px}
header.page{padding-top:28px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:40px 0 8px;padding-top:8px;border-top:1px solid var(--line)}
h3{font-size:15px;margin:20px 0 6px}
p{margin:6px 0;max-width:80ch}
.soft{color:var(--soft)}
a{color:var(--link)}
.skip{position:absolute;left:-9999px}.skip:focus{left:8px;top:8px;background:var(--panel);padding:6px 10px;z-index:2}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;padding:0;margin:14px 0 0}
.alarm{border-left:5px solid var(--bad);background:var(--bad-fill);padding:10px 14px;margin:10px 0;font-weight:600;overflow-wrap:anywhere}
.notes{background:var(--panel);border:1px solid var(--line);padding:8px 14px 8px 32px;margin:10px 0}
.notes li{overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(255px,1fr));gap:14px;margin:16px 0}
.card{overflow-wrap:anywhere;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:12px 14px}
.card h3{margin:0;overflow-wrap:anywhere}
.card .rate{font-size:30px;font-weight:650;line-height:1.2;margin:4px 0}
.card .bound{font-size:19px;color:var(--warn)}
.card dl{display:grid;grid-template-columns:auto 1fr;gap:2px 10px;margin:8px 0 0;font-size:13.5px}
.card dt{color:var(--soft)}.card dd{margin:0;text-align:right}
figure{margin:12px 0}
figcaption{color:var(--soft);font-size:13.5px;max-width:90ch}
svg{display:block;width:100%;height:auto;max-width:1000px;font:12.5px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
svg text{fill:var(--text)}svg .soft{fill:var(--soft)}svg .axis{stroke:var(--line)}svg .row{stroke:var(--line);stroke-dasharray:2 4}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:6px 0;padding:0;font-size:13.5px}
.legend svg{display:inline-block;width:14px;height:14px;vertical-align:-2px;margin-right:5px}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
.thin{stroke-width:1.5}.thick{stroke-width:5;stroke-opacity:.45}.box{fill-opacity:.16;stroke-width:1.5}.dot{fill-opacity:.75}.hollow{fill:none;stroke-width:1.2;stroke-opacity:.8}
.scroll{overflow:auto;max-height:75vh;border:1px solid var(--line);border-radius:6px;margin:8px 0}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:13.5px}
caption{text-align:left;padding:6px 10px;color:var(--soft)}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{position:sticky;top:0;background:var(--panel);z-index:1;white-space:nowrap}
tbody th{font-weight:500;overflow-wrap:anywhere;min-width:11em}
td.long{overflow-wrap:anywhere;min-width:18em}
tbody tr:last-child>*{border-bottom:0}
.right{text-align:right;white-space:nowrap}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible{outline:2px solid var(--link);outline-offset:2px}
th button::after{content:" \\2195";color:var(--soft);font-weight:400}
th[aria-sort=ascending] button::after{content:" \\2191";color:var(--text)}th[aria-sort=descending] button::after{content:" \\2193";color:var(--text)}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.dim{color:var(--soft)}
.grid{width:auto}.grid th,.grid td{white-space:nowrap}.grid td.run{text-align:center;padding:2px;min-width:28px;font-weight:600;border-left:1px solid var(--ground);border-bottom:1px solid var(--ground)}
.grid td.run a{color:inherit;text-decoration:none;display:block}.grid td.run a:hover{text-decoration:underline}
.run.P{background:var(--good-fill);color:var(--good)}.run.F{background:var(--bad-fill);color:var(--bad)}.run.v{background:var(--warn-fill);color:var(--warn)}.run.q,.run.x{background:var(--none-fill);color:var(--soft)}
.grid thead tr:nth-child(2) th{top:30px}.grid .edge{border-left:6px solid var(--ground)}
.tools{display:flex;flex-wrap:wrap;gap:8px 14px;align-items:center;margin:8px 0}
input,select,.tools button,.theme{font:inherit;color:inherit;background:var(--ground);border:1px solid var(--line);border-radius:4px;padding:4px 8px}
.theme{float:right;cursor:pointer}
summary{cursor:pointer;padding:4px 0}
footer{margin-top:48px;padding-bottom:32px;color:var(--soft);font-size:13.5px}
[hidden]{display:none}
@media print{:root,:root[data-theme]{color-scheme:light;--ground:#fff;--panel:#fff;--line:#bbb;--text:#000;--soft:#444;--link:#000;--good:#11683c;--good-fill:#cdebd8;--bad:#a3211b;--bad-fill:#f8d7d3;--warn:#7a4d00;--warn-fill:#fbe6b8;--none-fill:#e6e8eb;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#8a6d00;--c5:#5b3fb5;--c6:#2b8ca3;--c7:#7f3b3b}
body{font-size:10.5pt}main,header.page,footer{max-width:none;padding:0}nav,.tools,.theme,.skip{display:none}.scroll{overflow:visible;max-height:none;border:0}
@page{size:A4;margin:12mm}thead th,.right{position:static;white-space:normal}table{font-size:7pt}th,td{padding:2px 3px}.grid th,.grid td{white-space:nowrap}th button::after{content:""!important}tr,figure,.card{break-inside:avoid}h2{break-after:avoid}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}tbody th{min-width:8em}td.long{min-width:0}.notes,.alarm{break-inside:avoid}}
`
