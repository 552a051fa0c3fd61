/** Programs for the clients, in their own language; each prints one line of JSON. */
const prelude = `
import hashlib, json, os, sys
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub import errors
sha = lambda path: hashlib.sha256(open(path, "rb").read()).hexdigest()
def tree(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = sha(path)
    return found
def failing(call):
    try:
        call()
    except Exception as error:
        chain, text = error, []
        while chain is not None:
            text.append(str(chain))
            chain = chain.__cause__ or chain.__context__
        return [type(error).__name__, "\\n".join(text)]
    return ["none", ""]
api = HfApi()
`

/** argv: the commit. A snapshot by branch and by commit, single files, listings. */
export const reading = `${prelude}
commit = sys.argv[1]
out = {}
out["snapshot"] = tree(snapshot_download("acme/tiny"))
out["again"] = tree(snapshot_download("acme/tiny", revision=commit))
out["file"] = open(hf_hub_download("acme/tiny", "config.json")).read()
out["exists"] = [api.file_exists("acme/tiny", one) for one in ["config.json", "tokenizer.model"]]
out["tree"] = sorted(one.path for one in api.list_repo_tree("acme/tiny", recursive=True))
out["top"] = sorted(one.path for one in api.list_repo_tree("acme/tiny"))
out["files"] = sorted(api.list_repo_files("acme/tiny"))
out["paths"] = [[one.path, one.size, one.lfs.sha256 if one.lfs else None, getattr(one, "xet_hash", None)]
                for one in api.get_paths_info("acme/tiny", ["model.safetensors", "config.json"])]
info = api.model_info("acme/tiny", files_metadata=True)
out["info"] = [info.id, info.sha, sorted(one.rfilename for one in info.siblings)]
out["refs"] = [[one.name, one.target_commit] for one in api.list_repo_refs("acme/tiny").branches]
out["repo_exists"] = api.repo_exists("acme/tiny")
meta = api.get_safetensors_metadata("acme/tiny")
out["tensors"] = meta.parameter_count
print(json.dumps(out))
`

/** argv: the file. One large file, whose connection breaks on the way. */
export const resuming = `${prelude}
print(json.dumps(sha(hf_hub_download("acme/large", sys.argv[1]))))
`

export const refused = `${prelude}
out = {}
out["gated"] = failing(lambda: hf_hub_download("acme/gated", "config.json"))
out["gated_snapshot"] = failing(lambda: snapshot_download("acme/gated"))
out["gone"] = failing(lambda: hf_hub_download("acme/gone", "config.json"))
out["gone_exists"] = api.file_exists("acme/gone", "config.json")
out["revision"] = failing(lambda: hf_hub_download("acme/unmade", "config.json"))
out["absent"] = failing(lambda: hf_hub_download("acme/tiny", "tokenizer.model"))
out["file"] = failing(lambda: hf_hub_download("acme/tiny", "modeling_tiny.py"))
out["repo"] = failing(lambda: snapshot_download("acme/other"))
out["info"] = failing(lambda: api.model_info("acme/other"))
out["other_revision"] = failing(lambda: api.model_info("acme/tiny", revision="refs/pr/1"))
out["dataset"] = failing(lambda: snapshot_download("acme/data", repo_type="dataset"))
out["space"] = failing(lambda: api.space_info("acme/space"))
out["search"] = failing(lambda: list(api.list_models(search="tiny")))
out["upload"] = failing(lambda: api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id="acme/tiny", token="hf_agent"))
out["create"] = failing(lambda: api.create_repo("acme/new", token="hf_agent"))
out["commits"] = failing(lambda: list(api.list_repo_commits("acme/tiny")))
print(json.dumps(out))
`

/** A tokenizer, a configuration and weights, as a program of an agent's would load them. */
export const transformersLoad = `
import json
from transformers import AutoConfig, AutoTokenizer
from huggingface_hub import hf_hub_download
from safetensors.numpy import load_file
config = AutoConfig.from_pretrained("acme/tiny")
tokenizer = AutoTokenizer.from_pretrained("acme/tiny")
weights = load_file(hf_hub_download("acme/tiny", "model.safetensors"))
print(json.dumps([config.model_type, config.hidden_size, tokenizer("hello world")["input_ids"],
                  {name: list(tensor.shape) for name, tensor in weights.items()}]))
`
