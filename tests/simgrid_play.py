"""Play schedules on SimGrid's simulator, for whoever has its Python bindings; needs neither ringbench nor pytest.

Reads JSON from stdin: alpha_s, beta_s_per_byte, gamma_s_per_byte and for each rank its operations, each with dest,
source, sent and reduced (bytes). Every ordered pair of ranks has a link of its own. Writes when the last rank ended.
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor

FLOPS = 1e9


def main() -> None:
    case = json.load(sys.stdin)
    flat = ("network/model:CM02", "network/latency-factor:1", "network/bandwidth-factor:1", "network/crosstraffic:0")
    options = [
        f"--cfg={option}" for option in (*flat, "network/TCP-gamma:0", "network/weight-S:0", "maxmin/precision:1e-12")
    ]
    engine = Engine(["simgrid_play", "--log=root.thresh:error", *options, "--cfg=surf/precision:1e-15"])
    zone = NetZone.create_full_zone("flat")
    ranks = range(len(case["programs"]))
    hosts = [zone.create_host(f"rank{rank}", FLOPS).seal() for rank in ranks]
    for one in ranks:
        for other in ranks:
            if one != other:
                link = zone.create_link(f"{one}to{other}", 1 / case["beta_s_per_byte"])
                link.set_latency(case["alpha_s"]).seal()
                ends = (hosts[one].netpoint, hosts[other].netpoint)
                zone.add_route(*ends, None, None, [LinkInRoute(link)], False)
    zone.seal()

    def run(rank: int) -> None:
        for step in case["programs"][rank]:
            pending, kept = [], []
            if step["source"] is not None:
                comm, buffer = Mailbox.by_name(f"{step['source']}to{rank}").get_async()
                pending.append(comm)
                kept.append(buffer)  # the message is written there: it must not be collected before
            if step["dest"] is not None:
                pending.append(Mailbox.by_name(f"{rank}to{step['dest']}").put_async("", step["sent"]))
            for comm in pending:
                comm.wait()
            if step["reduced"]:
                this_actor.execute(step["reduced"] * case["gamma_s_per_byte"] * FLOPS)

    for rank in ranks:
        Actor.create(f"rank{rank}", hosts[rank], run, rank)
    engine.run()
    json.dump({"simulated_s": engine.clock}, sys.stdout)


main()
