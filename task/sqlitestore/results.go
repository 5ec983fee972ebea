package sqlitestore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	resultsSuffix = ".results" // of the directory beside the database

	chunksInside = 16      // chunks of an answer that the database keeps: the first MiB
	chunkOutside = 4 << 10 // the smallest chunk that a file keeps

	slotSize = task.ChunkSize + 512 // how far the chunks in a file are apart
	slotHead = 8                    // a chunk's length and its checksum
)

// Results are the files beside a database that keep large answers, one for each
// task. Chunk n of an answer has a place of its own in the file; the chunks
// before the first of them are in the database, and so are chunks that are written
// again or small. What the database has of a chunk counts more than the file.
type results struct {
	dir    string // made when it is needed
	inside int    // chunks that the database keeps
	least  int    // the smallest chunk that a file keeps

	locks [64]sync.RWMutex // each for some of the files: chunks are read while others are written

	flush func(*os.File) error // has the disk keep a file

	mu       sync.Mutex
	root     *os.Root         // nil until it is needed
	unsynced map[string]error // files that the disk has failed to keep, and why
}

// resultName returns the name of the file for the answer to a task. An id may be
// any text, and two ids may differ in case alone, so it is a hash.
func resultName(id task.ID) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// lock returns the lock of a file.
func (r *results) lock(name string) *sync.RWMutex {
	return &r.locks[crc32.ChecksumIEEE([]byte(name))%uint32(len(r.locks))]
}

// takes reports whether a file is the place for a chunk.
func (r *results) takes(n int, data []byte) bool { return n >= r.inside && len(data) >= r.least }

// offset returns where the place of chunk n begins.
func (r *results) offset(n int) int64 { return int64(n-r.inside) * slotSize }

// open opens the directory, if it is there.
func (r *results) open() (*os.Root, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root != nil {
		return r.root, nil
	}
	root, err := os.OpenRoot(r.dir)
	if err == nil {
		r.root = root
	}
	return root, err
}

// makeDir makes a directory that nobody but its owner can look into, in another one.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(name, 0o700); err != nil { //nolint:gosec // a directory
			return err
		}
		if err := syncDir(filepath.Dir(name)); err != nil {
			return err
		}
	}
	return nil
}

func (r *results) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root == nil {
		return nil
	}
	root := r.root
	r.root = nil
	return root.Close()
}

// A place is where a file keeps a chunk.
type place struct {
	file *os.File
	at   int64
}

// place returns the place of chunk n. The caller has the lock of the file.
func (r *results) place(id task.ID, n int) (place, error) {
	root, err := r.open()
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(r.dir); err == nil {
			root, err = r.open()
		}
	}
	if err != nil {
		return place{}, err
	}
	file, err := root.OpenFile(resultName(id), os.O_RDWR|os.O_CREATE, 0o600)
	return place{file: file, at: r.offset(n)}, err
}

// head returns the length and the checksum of a chunk; zeros if there is none.
func (p place) head() (head [slotHead]byte, err error) {
	_, err = p.file.ReadAt(head[:], p.at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return head, err
}

// checksum tells a chunk from what was left of it by a crash, and from another one.
func (p place) checksum(data []byte) uint32 {
	seed := crc32.Checksum(binary.BigEndian.AppendUint64(nil, uint64(p.at)), castagnoli) //nolint:gosec // not negative
	return crc32.Update(seed, castagnoli, data)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write puts a chunk into its place. It is there once its head is.
func (p place) write(data []byte) error {
	var head [slotHead]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(data))) //nolint:gosec // at most a chunk
	binary.BigEndian.PutUint32(head[4:], p.checksum(data))
	_, err := p.file.WriteAt(data, p.at+slotHead)
	if err == nil {
		_, err = p.file.WriteAt(head[:], p.at)
	}
	return err
}

// clear takes a chunk away, and returns how large the file is then. Nothing is left
// of the chunk.
func (p place) clear() (int64, error) {
	info, err := p.file.Stat()
	if err != nil || info.Size() <= p.at {
		return info.Size(), err
	}
	if info.Size() <= p.at+slotSize {
		return p.at, p.file.Truncate(p.at)
	}
	_, err = p.file.WriteAt(make([]byte, slotSize), p.at)
	return info.Size(), err
}

// errTorn is the reason for which a chunk cannot be read: it is not what was
// written.
var errTorn = errors.New("the file beside the database is damaged")

// read returns chunk n of the answer to a task.
func (r *results) read(ref task.Ref, n int) ([]byte, error) {
	name := resultName(ref.ID)
	lock := r.lock(name)
	lock.RLock()
	defer lock.RUnlock()
	root, err := r.open()
	var file *os.File
	if err == nil {
		file, err = root.Open(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ref.ChunkMissing(n)
	}
	if err != nil {
		return nil, err
	}
	data, err := place{file: file, at: r.offset(n)}.read()
	err = errors.Join(err, file.Close())
	switch {
	case errors.Is(err, errTorn):
		return nil, &task.Error{Kind: task.KindUnreadable, ID: ref.ID, Action: task.ActionReadChunk, Err: err}
	case err == nil && data == nil:
		return nil, ref.ChunkMissing(n)
	default:
		return data, err
	}
}

// read returns the chunk, or nil if there is none.
func (p place) read() ([]byte, error) {
	head, err := p.head()
	if err != nil || head == [slotHead]byte{} {
		return nil, err
	}
	buffer := task.ChunkBuffer()
	length := int(binary.BigEndian.Uint32(head[:]))
	if length > len(buffer) {
		return nil, errTorn
	}
	data := buffer[:length]
	if n, err := p.file.ReadAt(data, p.at+slotHead); n < length && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if binary.BigEndian.Uint32(head[4:]) != p.checksum(data) {
		return nil, errTorn
	}
	return data, nil
}

// sync makes sure that the answer to a task is on disk, and returns how large its
// file is; zero if there is none. A file that the disk has once failed to keep
// counts as lost: asked again, the disk would say that all is well.
func (r *results) sync(id task.ID) (size int64, err error) {
	name := resultName(id)
	root, err := r.open()
	var file *os.File
	if err == nil {
		file, err = root.OpenFile(name, os.O_RDWR, 0) // Windows flushes no file that is open for reading alone
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err == nil {
		size, err = info.Size(), r.flushed(name, r.flush(file))
	}
	return size, errors.Join(err, file.Close(), syncDir(r.dir))
}

// flushed returns err, or why the file could not be flushed before.
func (r *results) flushed(name string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.unsynced[name] = err
	}
	return r.unsynced[name]
}

// remove deletes the answer to a task that has been deleted. A file that is left
// is found by [results.sweep].
func (r *results) remove(id task.ID) {
	root, err := r.open()
	if err != nil {
		return
	}
	name := resultName(id)
	lock := r.lock(name)
	lock.Lock()
	_ = root.Remove(name)
	lock.Unlock()
	r.mu.Lock()
	delete(r.unsynced, name)
	r.mu.Unlock()
}

// sweep deletes files that no task has. tasks returns those that may have one: it is
// called after the files were listed, because a task is noted before its file is
// made.
func (r *results) sweep(tasks func() ([]task.ID, error)) error {
	root, err := r.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	ids, err := tasks()
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[resultName(id)] = true
	}
	for _, file := range found {
		if name := file.Name(); len(name) == hex.EncodedLen(sha256.Size) && !known[name] {
			_ = root.Remove(name) // or the next time: it is in nobody's way
		}
	}
	return nil
}

// full returns what to tell of an error of a file: the disk may have no room.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return &task.Error{Kind: task.KindCapacityExceeded, Err: err}
	}
	return err
}
