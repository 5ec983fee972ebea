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
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	resultsSuffix = ".results" // of the directory beside the database

	chunksInDatabase = 16      // chunks of an answer that the database keeps: the first MiB
	minFileChunk     = 4 << 10 // the smallest chunk that a file keeps

	slotSize = task.ChunkSize + 512 // the size of a slot
	slotHead = 8                    // a chunk's length and its checksum
)

// Results are the files beside a database with large answers, one for each task. Chunk n
// of an answer has its own slot in the file. The first chunks of an answer are in the
// database, and so are small chunks and chunks that are written again. A chunk in the
// database takes precedence over the file.
type results struct {
	dir        string // created when it is needed
	inDatabase int    // chunks that the database keeps
	minChunk   int    // the smallest chunk that a file keeps

	locks [64]sync.RWMutex // each lock is for some of the files; chunks are read while others are written

	flush func(*os.File) error // flushes a file to disk

	mu          sync.Mutex
	root        *os.Root         // nil until it is needed
	flushErrors map[string]error // the errors of files whose flush has failed
}

// resultName returns the name of the file with the answer to a task. It is a hash, because an
// id may be any text, and ids may differ only in case.
func resultName(id task.ID) string {
	sum := sha256.Sum256([]byte(id))
	//mutate:swap "return hex.EncodeToString(sum[:])" "_ = sum; return string(id)" TestLargeAnswersArePrivateFiles the file of an answer has the id of its task as its name
	return hex.EncodeToString(sum[:])
}

// lock returns the lock of a file.
func (r *results) lock(name string) *sync.RWMutex {
	return &r.locks[crc32.ChecksumIEEE([]byte(name))%uint32(len(r.locks))]
}

// accepts reports whether a chunk goes to a file.
func (r *results) accepts(n int, data []byte) bool {
	return n >= r.inDatabase && len(data) >= r.minChunk
}

// offset returns the offset of the slot of chunk n.
func (r *results) offset(n int) int64 { return int64(n-r.inDatabase) * slotSize }

// open opens the directory, if it exists.
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

// openFile opens the file for the answer to a task.
func (r *results) openFile(id task.ID, flag int) (*os.File, error) {
	root, err := r.open()
	if err != nil {
		return nil, err
	}
	//mutate:swap "0o600" "0o644" TestLargeAnswersArePrivateFiles all users may read the file of an answer
	return root.OpenFile(resultName(id), flag, 0o600)
}

// makeDir makes a directory and its parent, readable only by their owner.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{dir, filepath.Dir(dir)} {
		//mutate:swap "0o700" "0o755" TestLargeAnswersArePrivateFiles all users may read the directory of answers
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

// A chunkSlot is the position of a chunk in a file.
type chunkSlot struct {
	file *os.File
	at   int64
}

// slot returns the slot of chunk n. The caller holds the lock of the file.
func (r *results) slot(id task.ID, n int) (chunkSlot, error) {
	file, err := r.openFile(id, os.O_RDWR|os.O_CREATE)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(r.dir); err == nil {
			file, err = r.openFile(id, os.O_RDWR|os.O_CREATE)
		}
	}
	return chunkSlot{file: file, at: r.offset(n)}, err
}

// head returns the length and the checksum of a chunk; zeros if there is none.
func (p chunkSlot) head() (head [slotHead]byte, err error) {
	_, err = p.file.ReadAt(head[:], p.at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return head, err
}

// checksum covers the offset, so that it detects both torn and misplaced chunks.
func (p chunkSlot) checksum(data []byte) uint32 {
	seed := crc32.Checksum(binary.BigEndian.AppendUint64(nil, uint64(p.at)), castagnoli)
	return crc32.Update(seed, castagnoli, data)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write writes a chunk. It is complete when its head is written.
func (p chunkSlot) write(data []byte) error {
	var head [slotHead]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(data)))
	binary.BigEndian.PutUint32(head[4:], p.checksum(data))
	_, err := p.file.WriteAt(data, p.at+slotHead)
	if err == nil {
		_, err = p.file.WriteAt(head[:], p.at)
	}
	return err
}

// clear overwrites or truncates a chunk, and returns the new size of the file.
func (p chunkSlot) clear() (int64, error) {
	info, err := p.file.Stat()
	switch {
	case err != nil:
		return 0, err
	case info.Size() <= p.at:
		return info.Size(), nil
	case info.Size() <= p.at+slotSize:
		return p.at, p.file.Truncate(p.at)
	default:
		_, err = p.file.WriteAt(make([]byte, slotSize), p.at)
		return info.Size(), err
	}
}

// errTorn is the error of a chunk with a wrong checksum.
var errTorn = errors.New("the file beside the database is damaged")

// read returns chunk n of the answer to a task.
func (r *results) read(ref task.Ref, n int) ([]byte, error) {
	lock := r.lock(resultName(ref.ID))
	lock.RLock()
	defer lock.RUnlock()
	file, err := r.openFile(ref.ID, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ref.ChunkMissing(n)
	}
	if err != nil {
		return nil, err
	}
	data, err := chunkSlot{file: file, at: r.offset(n)}.read()
	err = errors.Join(err, file.Close())
	switch {
	case errors.Is(err, errTorn):
		return nil, &task.Error{Kind: task.ErrUnreadable, ID: ref.ID, Action: action.ReadChunk, Err: err}
	case err == nil && data == nil:
		return nil, ref.ChunkMissing(n)
	default:
		return data, err
	}
}

// read returns the chunk, or nil if there is none.
func (p chunkSlot) read() ([]byte, error) {
	head, err := p.head()
	if err != nil || head == [slotHead]byte{} {
		return nil, err
	}
	buffer := storekit.ChunkBuffer()
	length := int(binary.BigEndian.Uint32(head[:]))
	if length > len(buffer) {
		return nil, errTorn
	}
	data := buffer[:length]
	if n, err := p.file.ReadAt(data, p.at+slotHead); n < length && !errors.Is(err, io.EOF) {
		return nil, err
	}
	//mutate:false TestDamagedFileIsDetected a damaged answer is delivered
	if binary.BigEndian.Uint32(head[4:]) != p.checksum(data) {
		return nil, errTorn
	}
	return data, nil
}

// sync flushes the file of a task to disk, and returns its size, or zero without a file. A
// file whose flush has failed once counts as lost, because a second flush would succeed
// without writing the data.
func (r *results) sync(id task.ID) (size int64, err error) {
	file, err := r.openFile(id, os.O_RDWR) // Windows only flushes files that are open for writing
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err == nil {
		size, err = info.Size(), r.flushResult(resultName(id), r.flush(file))
	}
	return size, errors.Join(err, file.Close(), syncDir(r.dir))
}

// flushResult records the result of a flush of a file. Once a flush has failed, it returns an
// error for that file until [results.remove]; see [results.sync].
func (r *results) flushResult(name string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.flushErrors[name] = err
	}
	//mutate:swap "r.flushErrors[name]" "err" TestTaskCompletesAfterFlush an answer that was not flushResult counts as stored
	return r.flushErrors[name]
}

// remove deletes the answer to a task that has been deleted. If that
// fails, [results.sweep] deletes it later.
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
	delete(r.flushErrors, name)
	r.mu.Unlock()
}

// sweep deletes files without a task. tasks returns the tasks that may have a file. It is
// called after the files were listed, because a task is recorded before its file is made.
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
			_ = root.Remove(name) // on failure, the next sweep deletes it
		}
	}
	return nil
}

// explainFull turns the error of a full disk into a [task.Error].
func explainFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return &task.Error{Kind: task.ErrCapacityExceeded, Err: err}
	}
	return err
}
