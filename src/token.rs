//! Performance tokens: a UUID of version 8 that carries the task's number and a secret nonce.
//!
//! ```text
//! bits 127..80 | 79..76 | 75..64        | 63..62 | 61..0
//! number 59..12| 1000   | number 11..0  | 10     | nonce
//! ```
//!
//! Of the number's 60 bits the highest 12 are the shard to which the task belongs, 0 where none was set: a token says
//! where it is good (`verbs::shard`).
//!
//! The `run` row holds the nonce of the last grant, or 0. One claim draws one random *base*; the nonce of each of its
//! tasks is `base # task_no`, so nonces of one claim differ from each other, a set of nonces can be compared with a set of
//! rows without pairing them up ([`in_pieces`]), and one `lease` row with the base stands for many tasks.

use pgrx::Uuid;

use crate::number::TaskNo;
use crate::pg::newtype::newtype;

newtype! {
    /// What tells one performance of a task from any other.
    pub(crate) struct Nonce(pub(crate) i64);
}

newtype! {
    /// What the nonces of one claim are made from.
    pub(crate) struct Base(pub(crate) i64);
}

impl Nonce {
    /// That of a task for which no token is valid.
    pub(crate) const NONE: Nonce = Nonce(0);

    /// The base from which the nonce of this task was made.
    pub(crate) fn base(self, task_no: TaskNo) -> Base {
        Base(self.0 ^ task_no.0)
    }
}

impl Base {
    /// The nonce of a task under this base.
    pub(crate) fn nonce(self, task_no: TaskNo) -> Nonce {
        Nonce(self.0 ^ task_no.0)
    }
}

/// Number and nonce out of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The task that the token is for.
    pub(crate) task_no: TaskNo,
    /// The secret part: the nonce of the grant that the token names.
    pub(crate) nonce: Nonce,
}

/// How many shards there may be.
pub(crate) const MOST_SHARDS: i32 = 1 << 12;

/// The bits of a number that are the shard's own.
const OWN_BITS: u32 = 48;

/// The last numbers of a shard, which no task gets: where there are no more for tasks, there are still positions for
/// those that are there, and the sequence does not come to the numbers of the next shard.
const KEPT_BACK: i64 = 1 << 40;

/// The first number of a shard.
pub(crate) fn first_of(shard: i32) -> i64 {
    (i64::from(shard) << OWN_BITS) + 1
}

/// The shard that a number belongs to.
pub(crate) fn shard_of(number: i64) -> i32 {
    ((number >> OWN_BITS) as i32).rem_euclid(MOST_SHARDS)
}

/// Whether a task may have the number.
pub(crate) fn is_for_tasks(number: i64) -> bool {
    number & ((1 << OWN_BITS) - 1) < (1 << OWN_BITS) - KEPT_BACK
}

const NONCE_BITS: u128 = (1 << 62) - 1;

/// How many tokens [`in_pieces`] puts into one piece at most.
const PIECE: usize = 500;

/// Numbers and nonces in the order of the numbers, for statements that look for `task_no = ANY ($1) AND nonce = ANY
/// ($2)`: these compare the nonce of each row with all that they are given, so they are given few at a time.
pub(crate) fn in_pieces(pairs: impl IntoIterator<Item = (TaskNo, Nonce)>) -> Vec<(Vec<TaskNo>, Vec<Nonce>)> {
    let mut pairs: Vec<(TaskNo, Nonce)> = pairs.into_iter().collect();
    pairs.sort_unstable();
    pairs.chunks(PIECE).map(|piece| piece.iter().copied().unzip()).collect()
}

impl Token {
    /// The two of them.
    pub(crate) fn pair(self) -> (TaskNo, Nonce) {
        (self.task_no, self.nonce)
    }

    /// The shard on which it was granted.
    pub(crate) fn shard(self) -> i32 {
        shard_of(self.task_no.0)
    }

    /// The UUID that clients see.
    pub(crate) fn to_uuid(self) -> Uuid {
        let number = self.task_no.0 as u128 & ((1 << 60) - 1);
        let bits = ((number >> 12) << 80)
            | (0x8 << 76)
            | ((number & 0xfff) << 64)
            | (0b10 << 62)
            | (self.nonce.0 as u128 & NONCE_BITS);
        Uuid::from_bytes(bits.to_be_bytes())
    }

    /// What a client gave back; `None` if it has not the form of a token.
    pub(crate) fn from_uuid(uuid: &Uuid) -> Option<Token> {
        let bits = u128::from_be_bytes(*uuid.as_bytes());
        if (bits >> 76) & 0xf != 0x8 || (bits >> 62) & 0b11 != 0b10 {
            return None;
        }
        let number = ((bits >> 80) << 12) | ((bits >> 64) & 0xfff);
        Some(Token { task_no: TaskNo(number as i64), nonce: Nonce((bits & NONCE_BITS) as i64) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_round_trip() {
        for task_no in [1, 4095, 4096, 123_456_789_012, first_of(1), first_of(4095), (1 << 60) - 1] {
            for nonce in [1, 0x1234_5678_9abc, (1 << 62) - 1] {
                let token = Token { task_no: TaskNo(task_no), nonce: Nonce(nonce) };
                assert_eq!(Token::from_uuid(&token.to_uuid()), Some(token));
            }
        }
    }

    #[test]
    fn other_uuids_are_no_tokens() {
        assert_eq!(Token::from_uuid(&Uuid::from_bytes([0; 16])), None);
        let v4 = 0x550e8400_e29b_41d4_a716_446655440000_u128;
        assert_eq!(Token::from_uuid(&Uuid::from_bytes(v4.to_be_bytes())), None);
    }

    #[test]
    fn a_number_belongs_to_one_shard_from_the_first_to_the_last() {
        for shard in [0, 1, 255, 256, 4095] {
            let last = first_of(shard) + (1 << OWN_BITS) - 2;
            for number in [first_of(shard), first_of(shard) + 1_000_000, last - KEPT_BACK, last] {
                assert_eq!(shard_of(number), shard, "{number}");
                assert_eq!(
                    Token::from_uuid(&Token { task_no: TaskNo(number), nonce: Nonce(7) }.to_uuid())
                        .unwrap()
                        .shard(),
                    shard
                );
            }
            assert!(is_for_tasks(first_of(shard)) && is_for_tasks(last - KEPT_BACK));
            assert!(!is_for_tasks(last - KEPT_BACK + 1) && !is_for_tasks(last));
        }
        assert_eq!(first_of(0), 1);
    }

    #[test]
    fn nonces_of_one_call_differ() {
        let base = Base(0x1357_9bdf_0246_8ace);
        assert_ne!(base.nonce(TaskNo(7)), base.nonce(TaskNo(8)));
        assert_eq!(base.nonce(TaskNo(7)).base(TaskNo(7)), base);
    }
}
