"""Steps of learning layered machines.

The log-likelihood of a row v is F(v) - F, with log-partitions of the machine with its visible units
at v, and free. Its gradient by the couplings is the difference of two averages,

    dW = <v h'> given the data - <v h'> of the model

the second from mean-field solutions (with terms of higher order), Gibbs chains, or all states;
centred by the offsets of the units, it does not depend on how these are coded (`ascent`). `train`
runs the phases of steps: `rows` and `sparse` for the data, `gradients` and `units` for the moves.
"""
