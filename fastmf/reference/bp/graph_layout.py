"""NumPy twin of `kernels.bp.graph_layout`."""

from collections import deque


def graph_layout(pairs, first, given, layout, queue):
    """Order units breadth first, component after component, and lay out their slots."""
    neighbours = [[] for _ in layout.order]
    for e, (i, j) in enumerate(pairs.tolist()):
        neighbours[i].append((e, 0, j))
        neighbours[j].append((e, 1, i))
    order, seen = [], set()
    for root in range(len(neighbours)):
        if root in seen:
            continue
        layout.n_components[0] += 1
        seen.add(root)
        waiting = deque([root])
        while waiting:
            order.append(waiting.popleft())
            new = [j for _, _, j in neighbours[order[-1]] if j not in seen]
            seen.update(new)
            waiting.extend(new)
    layout.order[:] = order
    layout.place[order] = range(len(order))
    slot = 0
    for p, i in enumerate(order):
        layout.starts[p] = slot
        for e, side, j in neighbours[i]:
            layout.neighbours[slot], layout.edges[slot] = layout.place[j], e
            layout.slots[e, side] = slot
            slot += 1
    layout.starts[len(order)] = slot
    layout.reverse[layout.slots] = layout.slots[:, ::-1]
