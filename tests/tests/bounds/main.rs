//! No call stops the server, whatever a caller gives it: the length of a chain, the number asked for, the product of two
//! arguments, the size of a text. A recursion, an allocation of a caller's size or a loop without an end would cost all
//! sessions of the cluster their work. And no refusal repeats more of what it was given than a line.

mod chains;
mod large;
mod largest;
mod memory;
mod messages;
mod numbers;
mod products;
