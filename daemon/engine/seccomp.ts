/**
 * The seccomp profile of every sandbox: an allow list, as the engines' own default is, with three differences.
 * Sockets are only of AF_UNIX, AF_INET, AF_INET6 and route netlink (AF_VSOCK reaches the hypervisor, which no network
 * namespace closes); there is no io_uring (its operations pass by this filter); and only the native architecture
 * exists, because the 32-bit socketcall hides its arguments from any filter.
 * Engines from 20.10 on take it as the value of `seccomp=`; no conditional parts are left for the engine to judge.
 */
export interface SeccompProfile {
  readonly defaultAction: string
  readonly architectures: readonly string[]
  readonly syscalls: readonly SyscallRule[]
}

interface SyscallRule {
  readonly names: readonly string[]
  readonly action: string
  readonly errnoRet?: number
  readonly args?: readonly {
    readonly index: number
    readonly value: number
    readonly valueTwo?: number
    readonly op: string
  }[]
}

const allow = 'SCMP_ACT_ALLOW'
const refuse = 'SCMP_ACT_ERRNO'
const equal = 'SCMP_CMP_EQ'
const ENOSYS = 38

/** By what they serve. A name that an engine's libseccomp does not know is passed over by the engine. */
const allowed = {
  files: `access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
    fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync flock fstat fstatfs fsync
    ftruncate futimesat getcwd getdents getdents64 ioctl lchown link linkat lseek lstat mkdir mkdirat mknod mknodat
    name_to_handle_at newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead
    readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs statx symlink symlinkat sync
    sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev cachestat`,
  attributes: `fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr
    lsetxattr removexattr setxattr getxattrat listxattrat removexattrat setxattrat`,
  watching: `epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 fanotify_mark
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch poll ppoll pselect6 select signalfd signalfd4`,
  asyncFiles: `io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit`,
  memory: `brk get_mempolicy madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore mlock mlock2
    mlockall mmap mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
    remap_file_pages set_mempolicy`,
  processes: `arch_prctl capget capset execve execveat exit exit_group fork get_robust_list get_thread_area getcpu getegid
    geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid
    gettid getuid ioprio_get ioprio_set kill modify_ldt pause pidfd_open pidfd_send_signal pipe pipe2 prctl prlimit64
    process_mrelease process_vm_readv process_vm_writev ptrace restart_syscall rseq sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp set_robust_list
    set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority setregid setresgid setresuid
    setreuid setrlimit setsid setuid sysinfo tgkill times tkill uname vfork wait4 waitid landlock_add_rule
    landlock_create_ruleset landlock_restrict_self`,
  signals: `rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sigaltstack`,
  waiting: `alarm clock_adjtime clock_getres clock_gettime clock_nanosleep adjtimex futex futex_requeue futex_wait
    futex_waitv futex_wake getitimer getrandom gettimeofday nanosleep setitimer time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime`,
  sockets: `accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg
    sendmsg sendto setsockopt shutdown socketpair`,
  systemV: `mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl
    semget semop semtimedop shmat shmctl shmdt shmget`,
} as const

/** The flags of clone that make a namespace: CLONE_NEWNS to CLONE_NEWNET. */
const namespaceFlags = 0x7e020000
/** PER_LINUX and PER_LINUX32, each also with UNAME26; and the question which one it is. */
const personalities = [0x0, 0x8, 0x20000, 0x20008, 0xffffffff]
const family = { unix: 1, inet: 2, inet6: 10, netlink: 16 } as const
const netlinkRoute = 0

const architectures: Readonly<Record<string, string>> = {
  x86_64: 'SCMP_ARCH_X86_64',
  aarch64: 'SCMP_ARCH_AARCH64',
}

/** null for an architecture that we have no profile for. */
export function seccompProfile(
  architecture: string,
  capabilities: readonly string[],
): SeccompProfile | null {
  const native = architectures[architecture]
  if (native === undefined) return null
  const ptrace = capabilities.includes('SYS_PTRACE')
  return {
    defaultAction: refuse,
    architectures: [native],
    syscalls: [
      { names: names(Object.values(allowed).join(' ')), action: allow },
      ...(ptrace ? [{ names: names('kcmp pidfd_getfd process_madvise'), action: allow }] : []),
      ...[family.unix, family.inet, family.inet6].map((value) => ({
        names: ['socket'],
        action: allow,
        args: [{ index: 0, value, op: equal }],
      })),
      {
        names: ['socket'],
        action: allow,
        args: [
          { index: 0, value: family.netlink, op: equal },
          { index: 2, value: netlinkRoute, op: equal },
        ],
      },
      ...personalities.map((value) => ({
        names: ['personality'],
        action: allow,
        args: [{ index: 0, value, op: equal }],
      })),
      {
        names: ['clone'],
        action: allow,
        args: [{ index: 0, value: namespaceFlags, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }],
      },
      // Its flags lie in memory that no filter can read. C libraries fall back to clone on ENOSYS, on EPERM they fail.
      { names: ['clone3'], action: refuse, errnoRet: ENOSYS },
    ],
  }
}

function names(text: string): string[] {
  return text.split(/\s+/).filter((name) => name !== '')
}
