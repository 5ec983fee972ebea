package sqlitestore

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// bellSuffix is added to the name of the database: the file with that name is
// written to after every commit.
const bellSuffix = "-bell"

const (
	lookEvery = time.Second           // in case a process was killed between its commit and the bell
	lookOften = 50 * time.Millisecond // if this process cannot hear the bell
)

// A bell tells the processes that share a database file of changes. A process
// rings it by writing to a file, which the others watch. A ring does not say what
// has changed.
type bell struct {
	file    *os.File
	watcher *fsnotify.Watcher // nil if files cannot be watched
	stop    chan struct{}
	running sync.WaitGroup
}

// hangBell has w ring the bell after each change, and look for the changes of
// others when it rings.
func hangBell(name string, w *writer) (*bell, error) {
	if err := makePrivate(name); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	b := &bell{file: file, stop: make(chan struct{})}
	every := lookEvery
	if b.watcher, err = watchFile(name); err != nil {
		every = lookOften
	}
	w.ring = b.ring
	b.running.Go(func() { b.listen(w.lookSoon, every) })
	return b, nil
}

// watchFile watches a file. A user may watch only so many at a time.
func watchFile(name string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watcher.Add(name); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	return watcher, nil
}

// ring tells everybody. Nobody depends on it: all look from time to time.
func (b *bell) ring() { _, _ = b.file.WriteAt([]byte{1}, 0) }

// listen calls look when the bell rings, and from time to time, until the bell is
// closed.
func (b *bell) listen(look func(), every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var rings chan fsnotify.Event
	var failures chan error
	if b.watcher != nil {
		rings, failures = b.watcher.Events, b.watcher.Errors
	}
	for {
		select {
		case <-b.stop:
			return
		case <-tick.C:
		case <-rings:
		case <-failures: // some rings were lost
		}
		look()
	}
}

func (b *bell) close() error {
	close(b.stop)
	b.running.Wait()
	var err error
	if b.watcher != nil {
		err = b.watcher.Close()
	}
	return errors.Join(err, b.file.Close())
}
