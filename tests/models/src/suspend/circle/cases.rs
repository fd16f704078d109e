//! What is tried.

use super::{Arc, Call, Circle, Clause, Task};

const A: Task = 0;
const B: Task = 1;
const C: Task = 2;
const M: Task = 3;
const N: Task = 4;
const U: Task = 5;

impl Circle {
    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<(&'static str, Circle)> {
        use Call::{Between, Insert, Suspend};
        let of = |stored: &[Arc], calls: &[Call]| Circle {
            without,
            tasks: 6,
            stored: stored.to_vec(),
            calls: calls.to_vec(),
        };
        vec![
            ("two on each other", of(&[], &[Suspend(A, B), Suspend(B, A)])),
            ("three in a circle", of(&[], &[Suspend(A, B), Suspend(B, C), Suspend(C, A)])),
            ("two on each other's dependents", of(&[(A, M), (B, N)], &[Suspend(A, N), Suspend(B, M)])),
            (
                "one dependent is inserted meanwhile",
                of(&[(B, N)], &[Suspend(A, N), Suspend(B, M), Insert(M, A)]),
            ),
            (
                "both dependents are inserted meanwhile",
                of(&[], &[Suspend(A, N), Suspend(B, M), Insert(M, A), Insert(N, B)]),
            ),
            ("a task is inserted between two", of(&[], &[Suspend(A, B), Between(U, A, B)])),
            ("a task is inserted between others", of(&[(A, M), (N, C)], &[Suspend(A, C), Between(U, M, N)])),
        ]
    }
}
