//! A parallel map that keeps order: results are returned in the order of the items, however long each takes.
//!
//! ```text
//! input --(producer)--> tasks --(workers)--> results --(reorder)--> caller
//!             ^------------- permits ------------------'
//! ```
//!
//! An item needs a permit to enter and returns it when its result leaves, so at most `window` items are in between.
//! Dropping the iterator stops everything upstream. A panic in the work becomes an error of that item; a stream that
//! ends without its end message is an error, too, never a short result.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    thread::Scope,
};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::{
    error::{Error, Result},
    events::Cancel,
};

/// Iterator over results in order; see [`run_ordered`].
#[derive(Debug)]
pub struct Ordered<U> {
    results: Receiver<Message<U>>,
    permits: Sender<()>,
    waiting: BTreeMap<u64, Result<U>>,
    next: u64,
    total: Option<u64>,
}

#[derive(Debug)]
enum Message<U> {
    Result(u64, Result<U>),
    /// The input ended after this many items.
    End(u64),
}

/// Runs `work` over `input` on `jobs` threads of the scope, with at most `window` items in flight, and returns the
/// results in order. An error of the input is returned at its place in the order.
pub fn run_ordered<'scope, 'env, I, T, U, F>(
    scope: &'scope Scope<'scope, 'env>,
    input: I,
    jobs: usize,
    window: usize,
    cancel: &Cancel,
    work: F,
) -> Ordered<U>
where
    I: Iterator<Item = Result<T>> + Send + 'scope,
    T: Send + 'scope,
    U: Send + 'scope,
    F: Fn(T) -> Result<U> + Clone + Send + 'scope,
{
    let window = window.max(1);
    let (permits, permitted) = bounded(window);
    for _ in 0..window {
        // The channel has capacity for all permits.
        let _ = permits.send(());
    }
    let (give, tasks) = bounded::<(u64, Result<T>)>(window);
    let (done, results) = unbounded();
    for _ in 0..jobs.clamp(1, window) {
        let (tasks, done, work) = (tasks.clone(), done.clone(), work.clone());
        scope.spawn(move || {
            for (number, item) in tasks {
                let result = item.and_then(|item| {
                    catch_unwind(AssertUnwindSafe(|| work(item)))
                        .unwrap_or_else(|panic| Err(Error::of_panic(panic.as_ref())))
                });
                if done.send(Message::Result(number, result)).is_err() {
                    return;
                }
            }
        });
    }
    let cancel = cancel.clone();
    scope.spawn(move || {
        let mut count = 0;
        let mut input = input;
        loop {
            if permitted.recv().is_err() {
                return;
            }
            let item = match cancel.check() {
                Ok(()) => catch_unwind(AssertUnwindSafe(|| input.next()))
                    .unwrap_or_else(|panic| Some(Err(Error::of_panic(panic.as_ref())))),
                Err(interrupted) => Some(Err(interrupted)),
            };
            let Some(item) = item else { break };
            let failed = item.is_err();
            if give.send((count, item)).is_err() {
                return;
            }
            count += 1;
            if failed {
                break;
            }
        }
        let _ = done.send(Message::End(count));
    });
    Ordered { results, permits, waiting: BTreeMap::new(), next: 0, total: None }
}

impl<U> Iterator for Ordered<U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        loop {
            if let Some(result) = self.waiting.remove(&self.next) {
                self.next += 1;
                let _ = self.permits.try_send(());
                return Some(result);
            }
            if self.total == Some(self.next) {
                return None;
            }
            match self.results.recv() {
                Ok(Message::Result(number, result)) => {
                    self.waiting.insert(number, result);
                }
                Ok(Message::End(total)) => self.total = Some(total),
                Err(_) => {
                    self.total = Some(self.next);
                    return Some(Err(Error::internal("a stage ended without finishing its work")));
                }
            }
        }
    }
}

/// Collects items until they have a number of bytes; each item of the result is a group of them,
/// which may be the work of one thread.
pub fn group_by_bytes<T: Send>(
    items: impl Iterator<Item = Result<T>> + Send,
    limit: u64,
    bytes_of: impl Fn(&T) -> u64 + Send,
) -> impl Iterator<Item = Result<Vec<T>>> + Send {
    let mut items = items.peekable();
    std::iter::from_fn(move || {
        items.peek()?;
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < limit {
            match items.next() {
                None => break,
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok(item)) => {
                    bytes += bytes_of(&item);
                    group.push(item);
                }
            }
        }
        Some(Ok(group))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn results_keep_the_order_and_the_window() {
        let inside = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let inside = &inside;
        let most = &most;
        std::thread::scope(|scope| {
            let input = (0..500_u64).map(|i| {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                Ok(i)
            });
            let results = run_ordered(scope, input, 4, 6, &Cancel::default(), |i: u64| {
                std::thread::sleep(std::time::Duration::from_micros(i * 7919 % 300));
                Ok(i * 2)
            });
            for (i, result) in results.enumerate() {
                assert_eq!(result.unwrap(), i as u64 * 2);
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 7, "{most:?}");
    }

    #[test]
    fn errors_and_panics_keep_their_place() {
        std::thread::scope(|scope| {
            let input = (0..10).map(Ok);
            let mut results = run_ordered(scope, input, 3, 4, &Cancel::default(), |i: i32| {
                assert!(i != 5, "five");
                if i == 3 { Err(Error::input("three")) } else { Ok(i) }
            });
            let texts: Vec<String> =
                results.by_ref().map(|r| r.map_or_else(|e| e.message().to_owned(), |i| i.to_string())).collect();
            assert_eq!(texts.len(), 10);
            assert_eq!(texts[3], "three");
            assert!(texts[5].contains("five"), "{}", texts[5]);
            assert_eq!(texts[9], "9");
        });
    }

    #[test]
    fn dropping_stops_an_endless_input() {
        std::thread::scope(|scope| {
            let mut results = run_ordered(scope, (0_u64..).map(Ok), 2, 3, &Cancel::default(), Ok);
            assert_eq!(results.next().unwrap().unwrap(), 0);
        });
    }

    #[test]
    fn a_cancelled_run_ends_in_an_error() {
        let cancel = Cancel::default();
        std::thread::scope(|scope| {
            let mut results = run_ordered(scope, (0_u64..).map(Ok), 2, 3, &cancel, Ok);
            results.next().unwrap().unwrap();
            cancel.cancel();
            let error = results.find_map(std::result::Result::err).unwrap();
            assert_eq!(error.kind(), crate::error::Kind::Interrupted);
            assert!(results.next().is_none());
        });
    }

    #[test]
    fn groups_end_where_they_have_enough_bytes() {
        let items = || [3_u64, 4, 1, 9, 2].into_iter().map(Ok);
        let groups: Vec<Vec<u64>> = group_by_bytes(items(), 5, |item| *item).map(Result::unwrap).collect();
        assert_eq!(groups, [vec![3, 4], vec![1, 9], vec![2]]);
        let failing = items().chain([Err(Error::internal("x"))]);
        assert!(group_by_bytes(failing, 100, |item| *item).next().unwrap().is_err());
    }
}
