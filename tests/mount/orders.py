# SPDX-License-Identifier: Apache-2.0
"""The orders of PyTorch, written down a second time, in Python and independent of the code in C."""


class Mt19937:
    """torch's CPU generator after manual_seed(seed)."""

    def __init__(self, seed):
        self.state = [seed & 0xffffffff]
        for i in range(1, 624):
            last = self.state[-1]
            self.state.append((1812433253 * (last ^ (last >> 30)) + i) & 0xffffffff)
        self.at = 624

    def u32(self):
        if self.at == 624:
            s = self.state
            for i in range(624):
                y = (s[i] & 0x80000000) | (s[(i + 1) % 624] & 0x7fffffff)
                s[i] = s[(i + 397) % 624] ^ (y >> 1) ^ (0x9908b0df if y & 1 else 0)
            self.at = 0
        y = self.state[self.at]
        self.at += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9d2c5680
        y ^= (y << 15) & 0xefc60000
        return y ^ (y >> 18)


def randperm(n, seed):
    """torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for n below about 2^32 / 20."""
    generator = Mt19937(seed)
    result = list(range(n))
    for i in range(n - 1):
        z = i + generator.u32() % (n - i)
        result[i], result[z] = result[z], result[i]
    return result


def distributed(n, world, rank, seed=0, epoch=0, shuffle=True, drop_last=False):
    """The indices of a torch.utils.data.DistributedSampler after set_epoch(epoch)."""
    indices = randperm(n, seed + epoch) if shuffle else list(range(n))
    if drop_last and n % world:
        size = n // world if n >= world else 0
        return indices[:size * world][rank::world]
    size = -(-n // world)
    while indices and len(indices) < size * world:
        indices += indices[:size * world - len(indices)]
    return indices[rank:size * world:world]


def merged(ranks):
    """The sequence of a node whose ranks run in step."""
    result = []
    for i in range(max(map(len, ranks), default=0)):
        result += [rank[i] for rank in ranks if i < len(rank)]
    return result
