package sqlitestore_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// A store that was closed can be opened again at once, even while a child process that is
// starting has copies of the files.
func TestReopenWhileProcessStarts(t *testing.T) {
	for _, o := range []sqlitestore.Options{inDir(t), sharedOptions(t)} {
		s := open(t, o)
		sqltest.Add(t, s, 1)
		if n := copyFiles(t, o.File); n < 3 { // the database twice, and its lock
			t.Fatalf("only %d files are open", n)
		}
		sqltest.Must(t, s.Close())
		open(t, sqlitestore.Options{File: o.File}) // alone
	}
}

// copyFiles makes copies of the open files whose names begin with name, as a fork
// does, and returns how many there are.
func copyFiles(t *testing.T, name string) (n int) {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	sqltest.Must(t, err)
	for _, link := range open {
		if file, err := os.Readlink(link); err != nil || !strings.HasPrefix(file, name) {
			continue
		}
		fd, err := strconv.Atoi(filepath.Base(link))
		sqltest.Must(t, err)
		duplicate, err := syscall.Dup(fd)
		sqltest.Must(t, err)
		t.Cleanup(func() { _ = syscall.Close(duplicate) })
		n++
	}
	return n
}
