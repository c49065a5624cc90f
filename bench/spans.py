"""Intervals of time on a device: what of communication is exposed."""


def union(spans):
    """Sorted, disjoint intervals that cover the same."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in union(spans))


def exposed(spans):
    """Of (is communication, begin, end): how long communication runs and nothing else does."""
    return length([(b, e) for _, b, e in spans]) - length([(b, e) for communication, b, e in spans if not communication])
