//! A fresh instance finds nothing of the one before it, whatever the kernel did to its pages meanwhile: it swapped them
//! out, it moved them to another place of the machine's memory, or it merged them with others.
//!
//! An instance is cleared by what the kernel says about its pages (`PAGEMAP_SCAN`). So each test makes the kernel do one of
//! these things. Where it has not the rights for that, or the kernel cannot do it, the test prints `skipped`, and why.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hostler::delivery::outcome::Outcome;
use hostler::sandbox::{Limits, Settings};
use hostler_tests::guests::handler;
use hostler_tests::rig::{Rig, message};
use nix::libc;

const PAGE: usize = 4096;
/// A page of WebAssembly.
const WASM_PAGE: usize = 64 << 10;

// The memory of the guest: zeros, an image, zeros. Its parts have sizes that hardly any other mapping of the process has.
const MEMORY: usize = 36 * WASM_PAGE;
const IMAGE: Range<usize> = 17 * WASM_PAGE..18 * WASM_PAGE;
/// The message and the outcome are below.
const WORDS: usize = WASM_PAGE;
/// Some words of each page are filled and searched.
const STEP: usize = 512;
/// Of the table. 512 of them are on a page.
const FUNCTIONS: usize = 32 << 10;
const WORD: u64 = 0x5ec2_e75e_c2e7_5ec2;

// What the guest does, by the number of the attempt.
const SEARCH: u32 = 1;
const FILL: u32 = 2;
const FILL_AND_WAIT: u32 = 3;
const ZERO_THE_IMAGE_AND_WAIT: u32 = 4;

/// A guest that fills its memory and its table. Its search asks for another attempt after as many milliseconds as it found words
/// and functions that do not belong to a fresh instance.
fn guest() -> Vec<u8> {
    let image = r"\07".repeat(IMAGE.len());
    let (first, end) = (IMAGE.start, IMAGE.end);
    let items = format!(
        r#"(memory $memory {pages})
        (data (i32.const {first}) "{image}")
        (table $table {FUNCTIONS} funcref)
        (elem declare func $function)
        (func $function)
        (func $fill (param $at i32) (param $end i32) (param $step i32) (param $word i64)
            (loop $next
                (i64.store (local.get $at) (local.get $word))
                (local.set $at (i32.add (local.get $at) (local.get $step)))
                (br_if $next (i32.lt_u (local.get $at) (local.get $end)))))
        (func $fill-all
            (table.fill $table (i32.const 0) (ref.func $function) (i32.const {FUNCTIONS}))
            (call $fill (i32.const {WORDS}) (i32.const {MEMORY}) (i32.const {STEP}) (i64.const {WORD})))
        (func $wait
            (loop $next (br_if $next (i32.eqz (call $is-cancelled)))))
        (func $search (result i64)
            (local $at i32) (local $found i64) (local $fresh i64)
            (local.set $at (i32.const {WORDS}))
            (loop $next
                (local.set $fresh (select (i64.const 0x0707070707070707) (i64.const 0)
                    (i32.and (i32.ge_u (local.get $at) (i32.const {first})) (i32.lt_u (local.get $at) (i32.const {end})))))
                (local.set $found (i64.add (local.get $found)
                    (i64.extend_i32_u (i64.ne (i64.load (local.get $at)) (local.get $fresh)))))
                (local.set $at (i32.add (local.get $at) (i32.const {STEP})))
                (br_if $next (i32.lt_u (local.get $at) (i32.const {MEMORY}))))
            (local.set $at (i32.const 0))
            (loop $next
                (local.set $found (i64.add (local.get $found)
                    (i64.extend_i32_u (i32.eqz (ref.is_null (table.get $table (local.get $at)))))))
                (local.set $at (i32.add (local.get $at) (i32.const 64)))
                (br_if $next (i32.lt_u (local.get $at) (i32.const {FUNCTIONS}))))
            (local.get $found))"#,
        pages = MEMORY / WASM_PAGE,
    );
    let body = format!(
        r"(if (i32.eq (local.get 8) (i32.const {SEARCH})) (then
            (i32.store8 (i32.const 512) (i32.const 1))
            (i32.store8 (i32.const 520) (i32.const 1))
            (i64.store (i32.const 528) (call $search))))
        (if (i32.eq (local.get 8) (i32.const {FILL})) (then (call $fill-all)))
        (if (i32.eq (local.get 8) (i32.const {FILL_AND_WAIT})) (then (call $fill-all) (call $wait)))
        (if (i32.eq (local.get 8) (i32.const {ZERO_THE_IMAGE_AND_WAIT})) (then
            (call $fill (i32.const {first}) (i32.const {end}) (i32.const 8) (i64.const 0))
            (call $wait)))
        i32.const 512"
    );
    handler(&items, &body)
}

/// The guest. It has one instance at a time.
fn rig() -> Rig {
    let settings = Settings {
        concurrency: 1,
        limits: Limits {
            wall: Duration::from_secs(60),
            cpu: Duration::from_secs(60),
            ..Limits::default()
        },
        ..Settings::default()
    };
    Rig::bytes(&guest(), &settings)
}

/// The number of words and functions in a fresh instance that do not belong to it.
async fn found(rig: &mut Rig) -> u128 {
    match rig.call(&message(""), SEARCH).await.outcome {
        Outcome::NackRequeue(Some(found)) => found.as_millis(),
        other => panic!("{other:?}"),
    }
}

/// Run an attempt that waits, until `is_done`.
async fn wait(rig: &mut Rig, attempt: u32, until: &str, mut is_done: impl FnMut() -> bool) {
    let cancelled = Arc::clone(&rig.cancelled);
    let message = message("");
    let waiting = async {
        let deadline = Instant::now() + Duration::from_secs(50);
        while !is_done() {
            assert!(Instant::now() < deadline, "{until}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancelled.store(true, Ordering::Relaxed);
    };
    let (report, ()) = tokio::join!(rig.call(&message, attempt), waiting);
    assert_eq!(report.outcome, Outcome::Ack);
    rig.cancelled.store(false, Ordering::Relaxed);
}

// The categories of a page.
const WRITTEN: u64 = 1 << 1;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const PFNZERO: u64 = 1 << 5;

/// Pages side by side with the same categories.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[derive(Default)]
#[repr(C)]
struct PageMapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The categories of each page of a range of this process's memory.
fn categories(range: &Range<usize>) -> io::Result<Vec<u64>> {
    let mut regions = vec![Region::default(); range.len() / PAGE];
    let every = WRITTEN | FILE | PRESENT | SWAPPED | PFNZERO;
    let mut scan = PageMapScan {
        size: size_of::<PageMapScan>() as u64,
        start: range.start as u64,
        end: range.end as u64,
        regions: regions.as_mut_ptr() as u64,
        regions_len: regions.len() as u64,
        category_anyof_mask: every,
        return_mask: every,
        ..PageMapScan::default()
    };
    let pagemap = File::open("/proc/self/pagemap")?;
    // _IOWR('f', 16, struct pm_scan_arg)
    let request = 3 << 30 | (size_of::<PageMapScan>() as u64) << 16 | u64::from(b'f') << 8 | 16;
    #[expect(
        unsafe_code,
        reason = "the structure is the kernel's, and its buffer holds as many regions as it says"
    )]
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), request, &raw mut scan) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut pages = vec![0; range.len() / PAGE];
    for region in &regions[..count] {
        let page = |address: u64| (address as usize - range.start) / PAGE;
        pages[page(region.start)..page(region.end)].fill(region.categories);
    }
    Ok(pages)
}

/// The mappings of this process that it may write and that no file on a disk is behind.
fn mappings() -> Vec<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let (range, mode) = (fields.next()?, fields.next()?);
        let path = fields.nth(3).unwrap_or_default();
        let is_memory = path.is_empty() || path.starts_with("/memfd:");
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        (is_memory && mode == "rw-p").then_some(address(start)?..address(end)?)
    };
    maps.lines().filter_map(parse).collect()
}

/// Those of the guest's memories.
fn parts() -> Vec<Range<usize>> {
    let sizes = [IMAGE.start, IMAGE.len(), MEMORY - IMAGE.end];
    let mut parts = mappings();
    parts.retain(|part| sizes.contains(&part.len()));
    parts
}

/// Advise the kernel about this memory. Some memory takes no advice.
fn advise(memory: &[Range<usize>], advice: libc::c_int) {
    for range in memory {
        #[expect(
            unsafe_code,
            reason = "the callers give advice that keeps what is there, or about memory of which no instance is left"
        )]
        unsafe {
            libc::madvise(
                ptr::without_provenance_mut(range.start),
                range.len(),
                advice,
            );
        }
    }
}

/// The words of the memory that the guest has filled.
fn filled() -> Option<Range<usize>> {
    let memory = File::open("/proc/self/mem").expect("Linux has it");
    let is_filled = |part: &Range<usize>| {
        let mut word = [0; 8];
        let last = (part.end - STEP) as u64;
        memory.read_exact_at(&mut word, last).is_ok() && u64::from_le_bytes(word) == WORD
    };
    let mut last = parts();
    last.retain(|part| part.len() == MEMORY - IMAGE.end);
    let end = last.into_iter().find(is_filled)?.end;
    Some(end - MEMORY + WORDS..end)
}

/// A test that cannot run here says so, and why.
fn skipped(test: &str, why: &str) {
    println!("skipped: {test}: {why}");
}

/// A swap file that is in use. A child turns it off as soon as this is dropped, or this process has ended.
struct SwapFile(Child);

impl SwapFile {
    const BYTES: usize = 64 << 20;

    /// Turn one on, or say why that does not work here.
    fn on() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("hostler-swap-{}", std::process::id()));
        let script = r#"
            trap '' HUP INT TERM
            PATH=$PATH:/usr/sbin:/sbin
            umask 077
            rm -f "$1" && head -c "$2" /dev/zero > "$1" && mkswap "$1" > /dev/null && swapon "$1" && echo on && read -r _
            swapoff "$1"
            rm -f "$1""#;
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&path)
            .arg(Self::BYTES.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| error.to_string())?;
        let mut on = [0; 2];
        let said = child
            .stdout
            .as_mut()
            .expect("it is piped")
            .read_exact(&mut on);
        if said.is_ok() {
            return Ok(Self(child));
        }
        let ended = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        let why = String::from_utf8_lossy(&ended.stderr);
        Err(why.lines().next().unwrap_or("no swap").to_owned())
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

/// A setting of the kernel that has another value until this is dropped.
struct Tuned {
    path: PathBuf,
    before: String,
}

impl Tuned {
    fn new(path: &str, value: &str) -> Result<Self, String> {
        let tuned = || {
            let before = fs::read_to_string(path)?;
            fs::write(path, value)?;
            Ok(before.trim().to_owned())
        };
        let before = tuned().map_err(|error: io::Error| format!("{path}: {error}"))?;
        Ok(Self {
            path: path.into(),
            before,
        })
    }
}

impl Drop for Tuned {
    fn drop(&mut self) {
        fs::write(&self.path, &self.before).ok();
    }
}

/// Makes the kernel move pages, until this is dropped.
struct Moving {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Moving {
    fn start() -> Result<Self, String> {
        const COMPACT: &str = "/proc/sys/vm/compact_memory";
        fs::write(COMPACT, "1").map_err(|error| format!("{COMPACT}: {error}"))?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                fs::write(COMPACT, "1").ok();
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// The pages of the machine that have moved since its start.
    fn pages() -> u64 {
        let counts = fs::read_to_string("/proc/vmstat").expect("Linux has it");
        let mut counts = counts.lines().filter_map(|line| line.split_once(' '));
        let moved = counts.find(|(name, _)| *name == "pgmigrate_success");
        moved.and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The kernel merges pages of this process that have the same content, until this is dropped.
struct Merging {
    _settings: Vec<Tuned>,
}

impl Merging {
    fn start() -> Result<Self, String> {
        let settings = [
            ("use_zero_pages", "1"),
            ("pages_to_scan", "20000"),
            ("sleep_millisecs", "1"),
            ("run", "1"),
        ];
        let tuned =
            settings.map(|(name, value)| Tuned::new(&format!("/sys/kernel/mm/ksm/{name}"), value));
        let settings = tuned.into_iter().collect::<Result<_, _>>()?;
        match Self::set(true) {
            true => Ok(Self {
                _settings: settings,
            }),
            false => Err("the kernel merges no pages of a whole process".to_owned()),
        }
    }

    fn set(merges: bool) -> bool {
        const PR_SET_MEMORY_MERGE: libc::c_int = 67;
        #[expect(unsafe_code, reason = "it has no pointers")]
        unsafe {
            libc::prctl(PR_SET_MEMORY_MERGE, libc::c_ulong::from(merges), 0, 0, 0) == 0
        }
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        Self::set(false);
    }
}

/// Two pages of a fresh mapping: the first one is written, the second one is read.
fn written_and_read(file: Option<&File>) -> [(u64, u64); 2] {
    let kind = file.map_or(libc::MAP_ANONYMOUS, |_| 0);
    let length = 16 * PAGE;
    let [mut written, mut read] = [(0, 0); 2];
    for (page, of) in [&mut written, &mut read].into_iter().enumerate() {
        #[expect(unsafe_code, reason = "a mapping of its own that nothing else knows")]
        unsafe {
            let start = libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | kind,
                file.map_or(-1, AsRawFd::as_raw_fd),
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            let range = start.addr()..start.addr() + length;
            let category = || categories(&range).expect("the kernel has PAGEMAP_SCAN")[5];
            of.0 = category();
            let byte = start.cast::<u8>().add(5 * PAGE);
            match page {
                0 => byte.write_volatile(1),
                _ => assert_eq!(byte.read_volatile(), u8::from(file.is_some())),
            }
            of.1 = category();
            libc::munmap(start, length);
        }
    }
    [written, read]
}

/// A reset clears the pages that are `PRESENT` or `SWAPPED`, and not of a `FILE`. So it costs more than it must where a kernel
/// says that of a page that was never touched, and it forgets nothing where a kernel says it of each page that was written.
#[test]
fn the_kernel_has_the_categories_that_a_reset_asks_for() {
    if let Err(error) = categories(&(0..PAGE)) {
        let why = format!("no PAGEMAP_SCAN: {error}");
        return skipped("the_kernel_has_the_categories_that_a_reset_asks_for", &why);
    }
    #[expect(unsafe_code, reason = "the descriptor is new")]
    let file = unsafe {
        let descriptor = libc::memfd_create(c"image".as_ptr(), 0);
        assert!(descriptor >= 0);
        File::from_raw_fd(descriptor)
    };
    file.write_all_at(&[1; 16 * PAGE], 0).unwrap();
    for (file, read) in [(None, PFNZERO), (Some(&file), FILE)] {
        let [(untouched, written), (_, was_read)] = written_and_read(file);
        println!("untouched {untouched:#x}, written {written:#x}, read {was_read:#x}");
        // Linux 6.18 says of a page that was never touched that it was written. This alone is why a reset does not ask for that.
        assert!(matches!(untouched, 0 | WRITTEN), "{untouched:#x}");
        assert_eq!(written, WRITTEN | PRESENT);
        assert_eq!(was_read, WRITTEN | PRESENT | read);
    }
}

// They run alone: their load slows the others down.
mod measured {
    use super::*;

    #[tokio::test]
    async fn a_fresh_instance_finds_nothing_that_was_swapped_out() {
        // Swap is turned on while this one runs.
        let running = rig();
        let _swap = match SwapFile::on() {
            Ok(swap) => swap,
            Err(why) => {
                return skipped("a_fresh_instance_finds_nothing_that_was_swapped_out", &why);
            }
        };
        for mut rig in [running, rig()] {
            for _ in 0..3 {
                wait(&mut rig, FILL_AND_WAIT, "its pages are in the swap", || {
                    let Some(words) = filled() else {
                        return false;
                    };
                    advise(&mappings(), libc::MADV_PAGEOUT);
                    let pages = categories(&words).unwrap();
                    let swapped = pages.iter().filter(|page| **page & SWAPPED != 0);
                    // The kernel may keep some.
                    swapped.count() > pages.len() * 9 / 10
                })
                .await;
                assert_eq!(found(&mut rig).await, 0);
            }
        }
    }

    #[tokio::test]
    async fn a_fresh_instance_finds_nothing_that_moved_while_the_one_before_was_cleared() {
        const PAGES: u64 = 20_000;
        const ROUNDS: u32 = 1_000;
        let test = "a_fresh_instance_finds_nothing_that_moved_while_the_one_before_was_cleared";
        let mut rig = rig();
        let _moving = match Moving::start() {
            Ok(moving) => moving,
            Err(why) => return skipped(test, &why),
        };
        let before = Moving::pages();
        let begun = Instant::now();
        let mut rounds = 0;
        while rounds < ROUNDS || Moving::pages() - before < PAGES {
            if begun.elapsed() > Duration::from_secs(60) {
                let moved = Moving::pages() - before;
                return skipped(
                    test,
                    &format!("only {moved} pages moved in {rounds} rounds"),
                );
            }
            rounds += 1;
            rig.call(&message(""), FILL).await;
            assert_eq!(found(&mut rig).await, 0, "round {rounds}");
            // The next round gets other pages of the machine, which have not moved yet.
            advise(&parts(), libc::MADV_DONTNEED);
        }
    }

    #[tokio::test]
    async fn a_fresh_instance_finds_its_image_where_pages_of_zeros_were_merged() {
        let mut rig = rig();
        let _merging = match Merging::start() {
            Ok(merging) => merging,
            Err(why) => {
                return skipped(
                    "a_fresh_instance_finds_its_image_where_pages_of_zeros_were_merged",
                    &why,
                );
            }
        };
        wait(
            &mut rig,
            ZERO_THE_IMAGE_AND_WAIT,
            "its pages are merged",
            || {
                let mut images = parts();
                images.retain(|part| part.len() == IMAGE.len());
                images.iter().any(|image| {
                    let pages = categories(image).unwrap();
                    pages.iter().all(|page| page & PFNZERO != 0)
                })
            },
        )
        .await;
        assert_eq!(found(&mut rig).await, 0);
    }
}
