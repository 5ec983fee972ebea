package config

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A fileSet reads the files of a configuration. It collects the directories to watch and a
// fingerprint of the contents.
type fileSet struct {
	dirs    map[string]bool
	content map[string][sha256.Size]byte // digests by file name
}

func newFileSet() *fileSet {
	return &fileSet{dirs: map[string]bool{}, content: map[string][sha256.Size]byte{}}
}

// read returns the content of a file, but at most maxFile + 1 bytes.
func (s *fileSet) read(name string) ([]byte, error) { return s.readLarge(name, maxFile) }

// readLarge returns the content of a file, but at most limit + 1 bytes.
func (s *fileSet) readLarge(name string, limit int64) ([]byte, error) {
	s.watch(filepath.Dir(name))
	if target, err := filepath.EvalSymlinks(name); err == nil {
		s.watch(filepath.Dir(target))
	}
	text, err := readFile(name, limit)
	s.content[name] = sha256.Sum256(text)
	return text, err
}

func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	src, err := io.ReadAll(io.LimitReader(f, limit+1))
	return src, errors.Join(err, f.Close())
}

// watch adds directories to watch.
func (s *fileSet) watch(dirs ...string) {
	for _, d := range dirs {
		s.dirs[d] = true
	}
}

func (s *fileSet) directories() []string { return slices.Sorted(maps.Keys(s.dirs)) }

// fingerprint returns a digest of the names and contents of all files.
func (s *fileSet) fingerprint() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.content)) {
		digest := s.content[name]
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(name))))
		_, _ = io.WriteString(h, name)
		_, _ = h.Write(digest[:])
	}
	h.Sum(sum[:0])
	return sum
}
