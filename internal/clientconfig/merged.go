package clientconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// Merged says how to undo a merge. Like the record that has it, it is written before the file.
type Merged struct {
	Section  []string          `json:"section"`           // path of the list
	Servers  []string          `json:"servers"`           // that were merged
	Program  string            `json:"program"`           // of the server in their place
	Original string            `json:"original"`          // the text of the servers
	Values   string            `json:"values"`            // a digest of the server in their place
	Written  string            `json:"written"`           // a digest of the file, unless it had other changes before
	Config   string            `json:"config"`            // the configuration of the gate
	Files    map[string]string `json:"files,omitempty"`   // digests of the files of the gate, by path, unless others have changed them
	Earlier  *Merged           `json:"earlier,omitempty"` // is in the file if the process was killed before it changed the file
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// digest returns a digest of the values in a table, whatever their form and order.
func (n *node) digest() string {
	hash := sha256.New()
	all := n.flatten(nil)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		_, _ = fmt.Fprintf(hash, "%q %q\n", id, all[id])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// path returns the path of the server in place of the merged ones.
func (m *Merged) path() []string { return append(slices.Clone(m.Section), MergedName) }

// in returns the server in place of the merged ones, or nil if the file has it no longer, or not as it was
// written.
func (m *Merged) in(root *node) *member {
	if m == nil {
		return nil
	}
	found, err := root.at(m.path())
	//mutate:swap "found.value.digest() != m.Values" "false" TestMergedIsWhatWasWritten a file of a project passes its own gate off as that of the user
	if err != nil || found == nil || found.value.digest() != m.Values {
		return nil
	}
	return found
}

// current returns the earlier merge if the file has that one, since it still has servers that m removes.
func (m *Merged) current(root *node) *Merged {
	if m == nil || m.Earlier.in(root) == nil {
		return m
	}
	list, err := root.at(m.Section)
	isLeft := func(name string) bool { return list.value.find(name) != nil }
	if err == nil && slices.ContainsFunc(m.Servers[len(m.Earlier.Servers):], isLeft) {
		return m.Earlier
	}
	return m
}

// undo returns the content with the servers in their place.
func (m *Merged) undo(c Client, content []byte, backup string) ([]byte, error) {
	if m == nil {
		return content, nil
	}
	root, err := parse(c.language, content)
	if err != nil {
		return nil, err
	}
	m = m.current(root)
	if digestOf(content) == m.Written {
		return os.ReadFile(backup)
	}
	list, err := root.at(m.Section)
	if err != nil || list == nil || list.value.find(MergedName) == nil {
		return content, err // it was removed, or never written
	}
	if m.in(root) == nil {
		return nil, fmt.Errorf("server %q was changed since the servers were merged: restore it by hand", MergedName)
	}
	targets := [][]string{m.path()}
	for _, name := range m.Servers {
		if list.value.find(name) != nil && name != MergedName {
			return nil, fmt.Errorf("a server %q was added since the servers were merged: restore it by hand", name)
		}
		targets = append(targets, append(slices.Clone(m.Section), name))
	}
	place, err := c.language.spans(content, list.value, m.path())
	if err != nil {
		return nil, err
	}
	restored := replaceSpans(content, c.language.replace(content, list.value, [][]span{place}, m.Original))
	_, err = c.verify(root, restored, targets)
	return restored, err
}

// Merge merges servers in the file of a client, and records how to undo that. Configure writes the
// configuration of the gate with the added servers, and returns its files: their contents by path.
func (f Files) Merge(c Client, file string, o MergeOptions, configure func([]MergedServer) (map[string][]byte, error)) (Merge, error) {
	target, err := Resolve(file)
	if err != nil {
		return Merge{}, err
	}
	for _, name := range []string{target, o.Config} { // other clients' servers may be merged into the configuration
		unlock, err := f.lock(name)
		if err != nil {
			return Merge{}, err
		}
		defer unlock()
	}
	var m Merge
	err = f.change(target, func(content []byte) ([]byte, error) {
		old, err := readRecord(f.prefix(target) + ".json")
		if err != nil {
			return nil, err
		}
		if o.known = old.mergedIn(c, content); o.known != nil && o.known.Config != o.Config {
			return nil, errChanging
		}
		if m, err = c.Merge(content, o); err != nil || len(m.Added) == 0 {
			return content, err
		}
		files, err := configure(m.Added)
		if err != nil {
			return nil, err
		}
		m.merged.note(o, files)
		if err := f.remember(c, target, content, nil, &m.merged); err != nil {
			return nil, err
		}
		return m.Text, f.write(files)
	})
	return m, err
}

// write writes the files of the gate.
func (f Files) write(files map[string][]byte) error {
	for name, text := range files {
		if place, err := Resolve(name); err == nil { // a link stays a link
			name = place
		}
		if err := f.replace(name, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// note adds the files of the gate. What others have changed since an earlier merge is not undone.
func (m *Merged) note(o MergeOptions, files map[string][]byte) {
	m.Config, m.Files = o.Config, map[string]string{}
	for name, text := range files {
		m.Files[name] = digestOf(text)
	}
	if o.known == nil {
		return
	}
	earlier := *o.known
	earlier.Earlier, m.Earlier = nil, &earlier
	for name := range files {
		if before, err := os.ReadFile(name); err != nil || digestOf(before) != o.known.Files[name] {
			delete(m.Files, name)
		}
	}
	for name, sum := range o.known.Files {
		if files[name] == nil {
			m.Files[name] = sum
		}
	}
}

// mergedIn returns the merge in a file, or nil.
func (r *Record) mergedIn(c Client, content []byte) *Merged {
	if r == nil {
		return nil
	}
	root, err := parse(c.language, content)
	if err != nil {
		return nil
	}
	if m := r.Merged.current(root); m.in(root) != nil {
		return m
	}
	return nil
}

// Known returns the configuration of an earlier merge in a file, or nothing.
func (f Files) Known(c Client, file string) (*Merged, error) {
	target, err := Resolve(file)
	if err != nil {
		return nil, err
	}
	r, err := readRecord(f.prefix(target) + ".json")
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(target)
	return r.mergedIn(c, content), err
}

// Extend adds an earlier merge of the file to o.
func (o MergeOptions) Extend(known *Merged) MergeOptions {
	o.known = known
	return o
}

// forgetFiles removes the files of the gate that nobody has changed, and returns the others.
func (m *Merged) forgetFiles() (kept []string, err error) {
	if m == nil {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		content, failed := os.ReadFile(name)
		switch {
		case errors.Is(failed, os.ErrNotExist):
		case failed == nil && digestOf(content) == m.Files[name] && !bytes.Equal(content, nil):
			err = errors.Join(err, removeIfExists(name))
		default:
			kept = append(kept, name)
		}
	}
	if _, own := m.Files[m.Config]; !own {
		kept = append(kept, m.Config)
	}
	return kept, err
}
