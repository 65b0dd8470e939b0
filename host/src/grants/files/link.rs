//! `wasi:filesystem` for granted directories. wasmtime does the work, on a thread that waits for the file system:
//! that thread may hang. So it keeps its seat until it is done, although the attempt may have ended.
//!
//! The entries of a directory are read in stretches, as the guest asks for them.

use std::fs::File;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use futures_util::FutureExt;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry,
    DirectoryEntryStream, ErrorCode, Filesize, HostDescriptor, HostDirectoryEntryStream,
    MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsError, FsResult, InputStream, Pollable, StreamError,
    StreamResult,
};

use crate::sandbox::host::Host;

/// The most threads that wait for files, of all attempts.
static THREADS: Semaphore = Semaphore::const_new(64);

/// The most bytes of one read of a stream, and of a stretch of a directory.
const READ_MAX: usize = 64 << 10;
const STRETCH: usize = 8 << 10;

/// Marks the data of the interface.
struct Files;

impl HasData for Files {
    type Data<'a> = View<'a>;
}

struct View<'a>(&'a mut Host);

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    types::add_to_linker::<Host, Files>(linker, |host| View(host))?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Do this on a thread, which keeps its seat.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> wasmtime::Result<T> {
    let seat = THREADS.acquire().await?;
    let working = spawn_blocking(move || {
        let _seat = seat;
        work()
    });
    Ok(working.await?)
}

/// The result of work that waits on its thread. Descriptors of a guest are made so.
fn now<T>(work: impl Future<Output = FsResult<T>>) -> FsResult<T> {
    let done = work.now_or_never();
    done.unwrap_or_else(|| Err(FsError::trap(wasmtime::format_err!("it does not wait"))))
}

impl View<'_> {
    /// Let wasmtime do something with this descriptor, on a thread.
    async fn work<T: Send + 'static>(
        &mut self,
        descriptor: &Resource<Descriptor>,
        work: impl FnOnce(&mut WasiFilesystemCtxView<'_>, Resource<Descriptor>) -> FsResult<T>
        + Send
        + 'static,
    ) -> FsResult<T> {
        let descriptor = self.0.table.get(descriptor)?.clone();
        // Its work waits on the thread that it is called on: so were the granted directories opened.
        let mut ctx = self.0.filesystem().ctx.clone();
        let working = on_thread(move || {
            let mut table = ResourceTable::new();
            let descriptor = table.push(descriptor)?;
            let mut view = WasiFilesystemCtxView {
                ctx: &mut ctx,
                table: &mut table,
            };
            work(&mut view, descriptor)
        });
        working.await.map_err(FsError::trap)?
    }

    fn file(&mut self, descriptor: &Resource<Descriptor>) -> FsResult<Arc<File>> {
        match self.0.table.get(descriptor)? {
            Descriptor::File(file) => Ok(Arc::clone(&file.file)),
            Descriptor::Dir(_) => Err(ErrorCode::IsDirectory.into()),
        }
    }

    /// Whether there is room for another descriptor.
    fn room(&mut self) -> FsResult<()> {
        self.0.room_for_descriptor().map_err(FsError::trap)
    }
}

impl types::Host for View<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        self.0.filesystem().filesystem_error_code(error)
    }
}

/// What reads.
macro_rules! reads {
    ($($name:ident($($argument:ident: $ty:ty),*) -> $answer:ty;)+) => {$(
        async fn $name(
            &mut self,
            descriptor: Resource<Descriptor>,
            $($argument: $ty),*
        ) -> FsResult<$answer> {
            self.work(&descriptor, move |view, own| now(view.$name(own, $($argument),*))).await
        }
    )+};
}

/// What writes: nothing is granted that may be written.
macro_rules! writes {
    ($($name:ident($($ty:ty),*) -> $answer:ty;)+) => {$(
        async fn $name(&mut self, _: Resource<Descriptor>, $(_: $ty),*) -> FsResult<$answer> {
            Err(ErrorCode::NotPermitted.into())
        }
    )+};
}

impl HostDescriptor for View<'_> {
    reads! {
        advise(offset: Filesize, length: Filesize, advice: Advice) -> ();
        sync_data() -> ();
        get_flags() -> DescriptorFlags;
        get_type() -> DescriptorType;
        read(length: Filesize, offset: Filesize) -> (Vec<u8>, bool);
        sync() -> ();
        stat() -> DescriptorStat;
        stat_at(flags: PathFlags, path: String) -> DescriptorStat;
        readlink_at(path: String) -> String;
        metadata_hash() -> MetadataHashValue;
        metadata_hash_at(flags: PathFlags, path: String) -> MetadataHashValue;
    }

    writes! {
        set_size(Filesize) -> ();
        set_times(NewTimestamp, NewTimestamp) -> ();
        write(Vec<u8>, Filesize) -> Filesize;
        create_directory_at(String) -> ();
        set_times_at(PathFlags, String, NewTimestamp, NewTimestamp) -> ();
        link_at(PathFlags, String, Resource<Descriptor>, String) -> ();
        remove_directory_at(String) -> ();
        rename_at(String, Resource<Descriptor>, String) -> ();
        symlink_at(String, String) -> ();
        unlink_file_at(String) -> ();
    }

    async fn open_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        self.room()?;
        let opened = self.work(&descriptor, move |view, own| {
            let opened = now(view.open_at(own, path_flags, path, open_flags, flags))?;
            Ok(view.table.delete(opened)?)
        });
        let opened = opened.await?;
        let file = match &opened {
            Descriptor::File(file) => &file.file,
            Descriptor::Dir(dir) => &dir.dir,
        };
        self.0.holds(file);
        Ok(self.0.table.push(opened)?)
    }

    async fn read_directory(
        &mut self,
        descriptor: Resource<Descriptor>,
    ) -> FsResult<Resource<DirectoryEntryStream>> {
        let dir = match self.0.table.get(&descriptor)? {
            Descriptor::Dir(dir) => Arc::clone(&dir.dir),
            Descriptor::File(_) => return Err(ErrorCode::NotDirectory.into()),
        };
        self.room()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Of its own: reading moves its place.
        let opened = on_thread(move || openat(&*dir, ".", flags, Mode::empty())).await;
        let opened = opened.map_err(FsError::trap)?.map_err(std::io::Error::from);
        let dir = Arc::new(File::from(opened.map_err(ErrorCode::from)?));
        self.0.holds(&dir);
        let entries = Entries {
            dir,
            read: Vec::new().into_iter(),
            is_over: false,
        };
        let entries = self.0.table.push(entries)?;
        Ok(Resource::new_own(entries.rep()))
    }

    fn drop(&mut self, descriptor: Resource<Descriptor>) -> wasmtime::Result<()> {
        Ok(self.0.table.delete(descriptor).map(drop)?)
    }

    fn read_via_stream(
        &mut self,
        descriptor: Resource<Descriptor>,
        position: Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        let file = self.file(&descriptor)?;
        self.room()?;
        // It holds a buffer as well, so it counts beside its file.
        let stream = Stream {
            file: Arc::new(Open(file)),
            position,
            state: State::Idle,
        };
        self.0.holds(&stream.file);
        let stream: DynInputStream = Box::new(stream);
        Ok(self.0.table.push(stream)?)
    }

    fn write_via_stream(
        &mut self,
        _: Resource<Descriptor>,
        _: Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        Err(ErrorCode::NotPermitted.into())
    }

    fn append_via_stream(
        &mut self,
        _: Resource<Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        Err(ErrorCode::NotPermitted.into())
    }

    async fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        let other = self.0.table.get(&other)?.clone();
        let same = self.work(&one, move |view, own| {
            let other = view.table.push(other)?;
            let same = view.is_same_object(own, other).now_or_never();
            same.unwrap_or(Ok(false)).map_err(FsError::trap)
        });
        same.await.map_err(|error| wasmtime::format_err!("{error}"))
    }
}

/// The entries of a directory, of which one stretch is here.
struct Entries {
    dir: Arc<File>,
    read: vec::IntoIter<Result<DirectoryEntry, ErrorCode>>,
    is_over: bool,
}

/// The next stretch of the entries.
fn stretch(dir: &File) -> std::io::Result<Vec<Result<DirectoryEntry, ErrorCode>>> {
    let mut buffer = [MaybeUninit::uninit(); STRETCH];
    let mut listed = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = listed.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            let file_type = match entry.file_type() {
                FileType::Unknown => {
                    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                known => known,
            };
            let type_ = match file_type {
                FileType::RegularFile => DescriptorType::RegularFile,
                FileType::Directory => DescriptorType::Directory,
                FileType::Symlink => DescriptorType::SymbolicLink,
                FileType::BlockDevice => DescriptorType::BlockDevice,
                FileType::CharacterDevice => DescriptorType::CharacterDevice,
                _ => DescriptorType::Unknown,
            };
            let name = name.to_str().map(str::to_owned);
            let name = name.map_err(|_| ErrorCode::IllegalByteSequence);
            found.push(name.map(|name| DirectoryEntry { type_, name }));
        }
        if listed.is_buffer_empty() && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

impl HostDirectoryEntryStream for View<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        let stream = Resource::<Entries>::new_borrow(stream.rep());
        let entries = self.0.table.get_mut(&stream)?;
        if entries.read.len() == 0 && !entries.is_over {
            let dir = Arc::clone(&entries.dir);
            let read = on_thread(move || stretch(&dir))
                .await
                .map_err(FsError::trap)?;
            let read = read.map_err(ErrorCode::from)?;
            entries.is_over = read.is_empty();
            entries.read = read.into_iter();
        }
        Ok(entries.read.next().transpose()?)
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        let stream = Resource::<Entries>::new_own(stream.rep());
        Ok(self.0.table.delete(stream).map(drop)?)
    }
}

/// A file that one stream reads: each stream counts as a descriptor of its own.
struct Open(Arc<File>);

/// Reads a file from a position on.
struct Stream {
    file: Arc<Open>,
    position: u64,
    state: State,
}

enum State {
    Idle,
    Reading(JoinHandle<std::io::Result<Bytes>>),
    Read(Bytes),
    Failed(std::io::Error),
    Closed,
}

impl Stream {
    fn begin(&mut self, seat: tokio::sync::SemaphorePermit<'static>, size: usize) {
        let (file, position) = (Arc::clone(&self.file), self.position);
        self.state = State::Reading(spawn_blocking(move || {
            let _seat = seat;
            let mut bytes = vec![0; size.min(READ_MAX)];
            let read = std::os::unix::fs::FileExt::read_at(&*file.0, &mut bytes, position)?;
            bytes.truncate(read);
            Ok(bytes.into())
        }));
    }

    /// Wait until something is there, beginning to read `size` bytes if nothing is.
    async fn wait(&mut self, size: usize) {
        if matches!(self.state, State::Idle) {
            match THREADS.acquire().await {
                Ok(seat) => self.begin(seat, size),
                Err(error) => self.state = State::Failed(std::io::Error::other(error)),
            }
        }
        if let State::Reading(reading) = &mut self.state {
            self.state = match reading.await.map_err(std::io::Error::other) {
                Ok(Ok(bytes)) if bytes.is_empty() => State::Closed,
                Ok(Ok(bytes)) => State::Read(bytes),
                Ok(Err(error)) | Err(error) => State::Failed(error),
            };
        }
    }
}

#[async_trait]
impl InputStream for Stream {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match &mut self.state {
            State::Idle if size > 0 => {
                if let Ok(seat) = THREADS.try_acquire() {
                    self.begin(seat, size);
                }
                Ok(Bytes::new())
            }
            State::Idle | State::Reading(_) => Ok(Bytes::new()),
            State::Read(bytes) => {
                let read = bytes.split_to(size.min(bytes.len()));
                if bytes.is_empty() {
                    self.state = State::Idle;
                }
                self.position += read.len() as u64;
                Ok(read)
            }
            State::Failed(_) => match std::mem::replace(&mut self.state, State::Closed) {
                State::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
                _ => Err(StreamError::Closed),
            },
            State::Closed => Err(StreamError::Closed),
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size > 0 {
            self.wait(size).await;
        }
        self.read(size)
    }
}

#[async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {
        self.wait(4096).await;
    }
}
