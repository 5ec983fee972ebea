package sqlitestore_test

import (
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// A disk is the file system, with temporary faults.
type disk struct {
	vfs.VFS
	write, sync atomic.Pointer[func() error] // called before each operation; an error replaces the operation
}

// newDisk registers a disk under the name of the test.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{VFS: vfs.Find("")}
	vfs.Register(t.Name(), d)
	t.Cleanup(func() { vfs.Unregister(t.Name()) })
	return d
}

func writing(d *disk) *atomic.Pointer[func() error]  { return &d.write }
func flushing(d *disk) *atomic.Pointer[func() error] { return &d.sync }

// fails makes every write, or every flush, fail with err until repair is called.
func fails(what *atomic.Pointer[func() error], err error) (repair func()) {
	what.Store(new(func() error { return err }))
	return func() { what.Store(nil) }
}

func (d *disk) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpen(d.VFS, name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &diskFile{File: f, disk: d}, flags, nil
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(d.VFS, name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &diskFile{File: f, disk: d}, flags, nil
}

type diskFile struct {
	vfs.File
	disk *disk
}

func (f *diskFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if fault := f.disk.write.Load(); fault != nil {
		if err := (*fault)(); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(p, off)
}

func (f *diskFile) Sync(flags vfs.SyncFlag) error {
	if fault := f.disk.sync.Load(); fault != nil {
		if err := (*fault)(); err != nil {
			return err
		}
	}
	return f.File.Sync(flags)
}
