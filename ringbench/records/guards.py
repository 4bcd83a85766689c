"""Every warning there is: its name in the rows, its letter in the tables, what it means, what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Hold one warning: name, letter, meaning and advice, each a line without a full stop.

    ``about`` says what it looks at: ``ranks``, ``machine``, ``samples``, ``result``, ``comparison`` or ``fit``. One
    that ``library`` marks speaks against the MPI library's own collectives alone.
    """

    name: str
    letter: str
    about: str
    meaning: str
    advice: str
    library: bool = False


_ALL = (
    Guard(
        name="oversubscribed",
        letter="O",
        about="ranks",
        meaning="more ranks than cores: the times are the scheduler's, not the network's",
        advice="start no more ranks than there are cores, or take more nodes",
    ),
    Guard(
        name="shared core",
        letter="C",
        about="ranks",
        meaning="ranks took turns on one core while others were free: the times are the scheduler's",
        advice="give each a core of its own (--bind-to core, --cpu-bind=cores), and widen the mask of taskset",
    ),
    Guard(
        name="unpinned",
        letter="U",
        about="ranks",
        meaning="ranks were free to move between cores",
        advice="bind them: --bind-to core with mpirun, --cpu-bind=cores with srun",
    ),
    Guard(
        name="shared device",
        letter="Z",
        about="ranks",
        meaning="several ranks share one GPU: its memory and its copy engines are divided among them",
        advice="start one rank for each GPU (--gpus-per-node, --ntasks-per-node), and check CUDA_VISIBLE_DEVICES",
    ),
    Guard(
        name="cpu quota",
        letter="Q",
        about="machine",
        meaning="a control group stops the ranks when they have used up less time than one core each",
        advice="raise the limit (--cpus of docker, limits.cpu of a pod), or start fewer ranks",
    ),
    Guard(
        name="busy",
        letter="L",
        about="machine",
        meaning="other processes, or other guests of the machine, used the ranks' cores just before",
        advice="end what else runs there, or ask for nodes of your own (--exclusive with sbatch)",
    ),
    Guard(
        name="governor",
        letter="G",
        about="machine",
        meaning="the clock frequency of the ranks' cores follows their load",
        advice="cpupower frequency-set -g performance, or read the times as ratios alone",
    ),
    Guard(
        name="library tuned",
        letter="P",
        about="machine",
        meaning="settings in the environment choose the MPI library's algorithm",
        advice="take them out to measure the library as it comes",
        library=True,
    ),
    Guard(
        name="small shm",
        letter="H",
        about="machine",
        meaning="/dev/shm is too small for the MPI library's shared memory: it may take a slower way, or fail",
        advice="give it more: --shm-size 1g with docker, mount -o remount,size=1g /dev/shm as root",
    ),
    Guard(
        name="no cma",
        letter="X",
        about="machine",
        meaning="ranks may not read each other's memory: large messages in a node are copied twice",
        advice="sysctl kernel.yama.ptrace_scope=0 as root, or --cap-add SYS_PTRACE for a container",
    ),
    Guard(
        name="interfaces",
        letter="I",
        about="machine",
        meaning="several network interfaces, and nothing says which one carries the messages between nodes",
        advice="name one: --mca btl_tcp_if_include NAME with Open MPI, UCX_NET_DEVICES=NAME or FI_TCP_IFACE=NAME",
    ),
    Guard(
        name="short",
        letter="S",
        about="samples",
        meaning="shorter than 100 ticks of the clock",
        advice="a difference of a few ticks is none",
    ),
    Guard(
        name="noisy",
        letter="N",
        about="samples",
        meaning="the 95 % interval is wider than 10 % of the median",
        advice="take more samples (--time-budget, --max-samples), on a calmer machine",
    ),
    Guard(
        name="clocks",
        letter="k",
        about="samples",
        meaning="the ranks' clocks were compared with an error above 5 % of the time (--sync roundtime)",
        advice="align by a barrier instead (--sync barrier), or measure longer messages",
    ),
    Guard(
        name="late",
        letter="r",
        about="samples",
        meaning="a tenth of the rounds and more are dropped because a rank was late (--sync roundtime)",
        advice="give each rank a core that nothing else uses, or align by a barrier instead",
    ),
    Guard(
        name="drift",
        letter="T",
        about="samples",
        meaning="the second half of the samples is 5 % faster or slower than the first",
        advice="measure again where nothing else runs; cores that grow hot do it too",
    ),
    Guard(
        name="bimodal",
        letter="M",
        about="samples",
        meaning="the samples form two groups apart from each other, and the median stands for one of them or none",
        advice="look at samples_s in run.jsonl; bind the ranks, and take several --launches",
    ),
    Guard(
        name="settling",
        letter="E",
        about="samples",
        meaning="the first samples are slower than almost all later ones: the warm-up was too short",
        advice="raise --warmup",
    ),
    Guard(
        name="disturbed",
        letter="j",
        about="samples",
        meaning="ranks came late on purpose (--straggler); in no fit",
        advice="read it beside the time without, calm_s",
    ),
    Guard(
        name="bits differ",
        letter="D",
        about="result",
        meaning="the result's last bits are not the same on all ranks",
        advice="take an algorithm that `ringbench list` calls identical where ranks must agree",
    ),
    Guard(
        name="wrong",
        letter="W",
        about="result",
        meaning="wrong result: no bandwidth, in no fit",
        advice="believe no time of this row; wrong_detail in run.jsonl names rank and element",
    ),
    Guard(
        name="forced",
        letter="F",
        about="comparison",
        meaning="the runs are unlike and were compared all the same",
        advice="measure both in the same way",
    ),
    Guard(
        name="alpha not identified",
        letter="A",
        about="fit",
        meaning="its interval reaches 0: these sizes do not determine the cost of a message",
        advice="add smaller sizes",
    ),
    Guard(
        name="beta not identified",
        letter="B",
        about="fit",
        meaning="its interval reaches 0: these sizes do not determine the cost of a byte",
        advice="add larger sizes",
    ),
    Guard(
        name="gamma not identified",
        letter="Y",
        about="fit",
        meaning="the cost of an addition is not told apart from that of a byte, or its interval reaches 0",
        advice="add allgather beside reduce_scatter, recursive_doubling, or --limit",
    ),
    Guard(
        name="outside ranks",
        letter="R",
        about="fit",
        meaning="more than twice outside the rank counts that were fitted",
        advice="measure more ranks, or take it for an order of magnitude",
    ),
    Guard(
        name="outside messages",
        letter="K",
        about="fit",
        meaning="some message is more than twice outside the lengths that were fitted",
        advice="measure larger or smaller sizes, or take it for an order of magnitude",
    ),
    Guard(
        name="not measured",
        letter="V",
        about="fit",
        meaning="this algorithm was not measured: its time is what its messages cost on the curve of others",
        advice="measure it once, to see whether the curve holds for it",
    ),
    Guard(
        name="model alone",
        letter="J",
        about="fit",
        meaning="a model that nothing measured: switches add, and each rank sends and receives the vector once",
        advice="read it as the least that such a network could need",
    ),
)

#: All warnings by name, in the order in which they are explained.
GUARDS = {guard.name: guard for guard in _ALL}

#: Where ranks had to share cores: such rows are in no fit unless asked for.
CROWDED = frozenset({"oversubscribed", "shared core"})
