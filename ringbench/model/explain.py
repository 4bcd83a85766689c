"""A fit in words: what a message and a byte cost, what the ring makes of it, and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence

from ringbench.model.fit import TIMED, FitResult, Model
from ringbench.model.heldout import HeldOut
from ringbench.model.points import CALL, LINK, messages_of, schedule_of
from ringbench.model.predict import crossovers, time_of
from ringbench.records.units import format_seconds, format_size, rough_size

#: Held-out errors up to these are called good, and fair.
GOOD, FAIR = 0.10, 0.25

#: The largest vector for which a crossing of two algorithms is looked for.
_LARGEST = 2**34


def explain(result: FitResult) -> list[str]:
    """Return lines that say in words what a fit has found."""
    links = [model for model in result.models if model.basis == LINK]
    lines = []
    for model in links:
        place = f"{_place(model)}: " if len(links) > 1 else ""
        lines += [place + line for line in (_link(model), *_ring(model), *_trust(model))]
    calls = [model for model in result.models if model.basis == CALL]
    if calls:
        lines.append(_calls(calls))
    drawn = {model.redrawn.over for model in result.models if model.redrawn}
    if "launches" in drawn:
        lines.append("intervals: launches drawn anew, and the scatter of the points about the curve")
    elif drawn:
        lines.append(
            "intervals: samples of the one launch drawn anew, and the scatter of the points about the curve; another "
            "launch may differ by more"
        )
    return lines


def explain_left_out(result: FitResult, held: Sequence[HeldOut]) -> list[str]:
    """Return lines on how far predictions are off at rank counts that were left out, and on what they come from."""
    lines = []
    for model in result.models:
        for found in held if model.basis == LINK else ():
            row = found.points[0].row
            if (row.device, row.in_place) == (model.points[0].row.device, model.points[0].row.in_place):
                place = f"{_place(model)}: " if len(held) > 1 else ""
                left = _listed(sorted({point.row.nranks for point in found.points}))
                lines.append(f"{place}fitted on N = {_listed(model.nranks)}: {_link(model)}")
                lines.append(f"{place}left out and predicted: N = {left} {_held(found)}")
    return lines


def _place(model: Model) -> str:
    row = model.points[0].row
    return f"{row.device}, {'in place' if row.in_place else 'out of place'}"


def _link(model: Model) -> str:
    curve, parts = model.curve, []
    for at, (alpha, beta) in enumerate(zip(curve.alphas, curve.betas, strict=True)):
        last = max(length for length in model.lengths if curve.shape.segment(length) == at)
        upto = f" up to {format_size(round(last))}" if at < len(curve.betas) - 1 else " beyond" if at else ""
        bandwidth = f"{1 / beta / 1e9:.3g} GB/s" if beta else "bytes at no cost that shows"
        parts.append(f"{format_seconds(alpha)} and {bandwidth}{upto}")
    costs = [
        f"{op} of {dtype} {1 / gamma / 1e9:.3g} GB/s" if gamma else f"{op} of {dtype} no cost that shows"
        for (op, dtype), gamma in zip(curve.shape.reductions, curve.gammas, strict=True)
    ]
    alone = ", timed by itself" if model.gamma_from == TIMED else ""
    adds = f"; an addition{alone}: {', '.join(costs)}" if costs else ""
    if not costs and any(point.reduced for point in model.points):
        adds = "; additions are inside the bandwidth: "
        if model.timed:
            alone = ", ".join(f"{1 / gamma / 1e9:.3g}" for gamma in model.timed if gamma)
            adds += f"by themselves they take {alone} GB/s, and leave no time for messages"
        else:
            adds += "allgather beside reduce_scatter, recursive doubling or --limit tells them"
    return f"a message costs {', '.join(parts)}{adds}"


def _ring(model: Model) -> list[str]:
    ring, doubling = (schedule_of("allreduce", name) for name in ("ring", "recursive_doubling"))
    rows = [point.row for point in model.points if point.row.collective == "allreduce"]
    if ring is None or doubling is None or not rows:
        return []
    nranks, nbytes = max(row.nranks for row in rows), max(row.nbytes for row in rows)
    reduction = (rows[0].op, rows[0].dtype)
    times = {name: time_of(model, "allreduce", name, nranks, reduction) for name in ("ring", "recursive_doubling")}
    messages, _ = messages_of(ring, nranks, nbytes)
    curve = model.own.get(("allreduce", "ring"), model).curve
    number = sum(count for _, count in messages)
    empty = sum(count * curve.alphas[curve.shape.segment(length)] for length, count in messages)
    whole = times["ring"](nbytes)
    lines = [
        f"ring on {nranks} ranks: {number:.0f} messages one after the other, "
        f"{format_seconds(number * curve.alphas[0])} of latency for a short vector; {format_size(nbytes)} take "
        f"{format_seconds(whole)}, {empty / whole:.0%} of it latency"
    ]
    ranges = crossovers(times, 8, _LARGEST)
    wins = [(low, high) for name, low, high in ranges if name == "ring"]
    if nranks == 2 or not wins:
        return lines
    low = wins[-1][0]
    known = "" if {"ring", "recursive_doubling"} <= {row.algorithm for row in rows} else ", as the curve has it"
    where = "at every size" if low == 8 and len(ranges) == 1 else f"from {rough_size(low)} on"
    if wins[-1][1] < _LARGEST:
        where = f"from {rough_size(low)} to {rough_size(wins[-1][1])}"
    return [*lines, f"ring beats recursive_doubling {where}, on {nranks} ranks{known}"]


def _trust(model: Model) -> list[str]:
    lines = []
    if model.own:
        names = ", ".join(name for _, name in model.own)
        lines.append(f"predicted by curves of their own, which do better on what was left out: {names}")
    found = [one for one in (model.ranks, model.sizes) if one is not None]
    if model.ranks is None:
        lines.append(f"{model.nranks[0]} ranks alone: nothing shows whether other rank counts follow the curve")
    if found:
        named = [f"{'rank counts' if one.left == 'nranks' else 'sizes'} {_held(one)}" for one in found]
        lines.append(f"left out and predicted: {'; '.join(named)}")
        lines.append(_verdict(model, found))
    return lines


def _held(held: HeldOut) -> str:
    error, point = held.worst
    row = point.row
    where = f"{row.algorithm} {format_size(row.nbytes)} on {row.nranks}"
    bias = held.bias
    least, most = min(bias, key=lambda decade: bias[decade]), max(bias, key=lambda decade: bias[decade])
    text = (
        f"{held.mape:.1%} off on average, {held.median:.1%} in the median, worst {error:+.0%} ({where}), bias by "
        f"decade from {bias[least]:+.0%} (from {least} B) to {bias[most]:+.0%} (from {most} B)"
    )
    regrets = [regret for regret, _ in held.regrets]
    if regrets:
        text += (
            f"; choosing by it is {sum(regrets) / len(regrets):.1%} slower than the best, at most {max(regrets):.0%}"
        )
    return text


def _verdict(model: Model, found: Sequence[HeldOut]) -> str:
    error = max(one.median for one in found)
    word = "a good guide" if error <= GOOD else "a rough guide" if error <= FAIR else "a summary, no prediction"
    spread = f"half of what was left out is within {error:.0%}, and the points scatter by {model.scatter:.0%}"
    lengths = f"messages of {rough_size(round(model.lengths[0]))} to {rough_size(round(model.lengths[-1]))}"
    return f"trust: {word} ({spread}); it has seen {lengths}, {_listed(model.nranks)} ranks, and no other machine"


def _calls(models: Sequence[Model]) -> str:
    names = sorted({point.row.algorithm for model in models for point in model.points})
    held = [model.sizes.mape for model in models if model.sizes]
    shares = list(dict.fromkeys(f"{share:.0%}" for share in (min(held), max(held)))) if held else []
    off = f"; left-out sizes are {' to '.join(shares)} off on average" if held else ""
    return (
        f"{', '.join(names)}: whole calls at each rank count, since what they send is not known; other rank counts are "
        f"not predicted{off}"
    )


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
