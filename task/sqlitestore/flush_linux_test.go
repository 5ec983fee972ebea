package sqlitestore_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
)

// TestFlushUsesWritableHandle checks that an answer is flushed through a handle that is open
// for writing, because Windows cannot flush other handles.
func TestFlushUsesWritableHandle(t *testing.T) {
	s := open(t, inDir(t))
	ref := executing(t, s, "tg_a")
	flushed := 0
	s.OnFlush(func(file *os.File) error {
		flushed++
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_GETFL, 0)
		if errno != 0 || flags&syscall.O_ACCMODE == syscall.O_RDONLY {
			t.Errorf("the file is open with flags %#x, %v; want it open for writing", flags, errno)
		}
		return file.Sync()
	})
	sqltest.Must(t, complete(t.Context(), s, ref, answerOf(large)))
	if flushed == 0 {
		t.Error("the file was not flushed")
	}
}
