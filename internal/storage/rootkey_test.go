package storage_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// With keys, the file never contains the root key in plain text.
func TestRootKeyIsEncrypted(t *testing.T) {
	settings := inDir(t)
	settings.Keys = "a:" + strings.Repeat("A", 43) + "="
	file, _ := settings.File()
	must(t, os.WriteFile(file+".key", []byte("of an earlier version"), 0o600))
	seal := func(s *sealedstore.Store) string {
		t.Helper()
		sealed, err := keyring.New(s, time.Now).Sealer(keyring.Sessions).Seal(t.Context(), "mine")
		must(t, err)
		return sealed
	}
	opens := func(s *sealedstore.Store, sealed string) bool {
		_, err := keyring.New(s, time.Now).Sealer(keyring.Sessions).Open(t.Context(), sealed)
		return err == nil
	}
	with := func(keys string, do func(*sealedstore.Store)) {
		t.Helper()
		settings.Keys = keys
		s, err := settings.Open(t.Context())
		must(t, err)
		do(s)
		must(t, s.Close())
	}
	a, b := settings.Keys, "b:"+strings.Repeat("B", 43)+"="
	var first string
	with(a, func(s *sealedstore.Store) { first = seal(s) })
	if content, err := os.ReadFile(file); err != nil || bytes.Contains(content, []byte("secret")) {
		t.Errorf("the root key is not encrypted: %v", err)
	}
	if _, err := os.Stat(file + ".key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key of an earlier version is still there: %v", err)
	}
	settings.Keys = ""
	if _, err := settings.Open(t.Context()); !storage.Permanent(err) {
		t.Errorf("opened without the key: %v", err)
	}
	with(b+","+a, func(s *sealedstore.Store) {
		if !opens(s, first) {
			t.Error("adding a new first key ended sessions")
		}
	})
	with(b, func(s *sealedstore.Store) {
		if !opens(s, first) {
			t.Error("the root key was not encrypted with the new key")
		}
		planted := gatestore.Record{Name: keyring.RecordName, Version: 3, Value: []byte(`{"keys":[{"secret":"` + strings.Repeat("A", 43) + `="}]}`)}
		must(t, s.Unwrap().PutRecord(t.Context(), planted))
		if _, err := keyring.New(s, time.Now).Sealer(keyring.Sessions).Seal(t.Context(), "x"); !errors.Is(err, task.ErrUnreadable) {
			t.Errorf("a foreign root key is used: %v", err)
		}
	})
	with(b, func(s *sealedstore.Store) {
		r, err := s.Unwrap().GetRecord(t.Context(), keyring.RecordName)
		if seal(s); err == nil && sealedstore.KeyOfRecord(r) == "" {
			t.Error("a foreign root key was not removed")
		}
	})
}

// An export contains neither the root key nor sessions.
func TestRootKeyIsNotExported(t *testing.T) {
	settings := inDir(t)
	s, err := settings.Open(t.Context())
	must(t, err)
	defer s.Close()
	_, err = keyring.New(s, time.Now).Sealer(keyring.Sessions).Seal(t.Context(), "x")
	must(t, err)
	must(t, s.PutRecord(t.Context(), gatestore.Record{Name: "session/x", Version: 1, Value: []byte("a session")}))
	kept, err := s.Unwrap().ListRecords(t.Context(), gatestore.RecordQuery{Limit: 10})
	if must(t, err); len(kept) != 2 {
		t.Fatalf("%d records; want the key and the session", len(kept))
	}
	for _, form := range []storage.Form{storage.AsStored, storage.Decrypted} {
		var out bytes.Buffer
		_, err := storage.Export(t.Context(), s, &out, form)
		must(t, err)
		for _, r := range kept {
			for _, text := range []string{r.Name, string(r.Value), base64.StdEncoding.EncodeToString(r.Value)} {
				if strings.Contains(out.String(), text) {
					t.Errorf("form %d has %q of the record %s: %s", form, text, r.Name, &out)
				}
			}
		}
	}
}

// Check reports records without which a gate does not start.
func TestCheckReportsUnreadableRecords(t *testing.T) {
	settings := inDir(t)
	settings.Keys = key("a")
	s, err := settings.Open(t.Context())
	must(t, err)
	_, err = keyring.New(s, time.Now).Sealer(keyring.Sessions).Seal(t.Context(), "x")
	must(t, err)
	for i := range 150 { // more than a page
		must(t, s.PutRecord(t.Context(), gatestore.Record{Name: fmt.Sprintf("session/%03d", i), Version: 1, Value: []byte(secret)}))
	}
	must(t, s.Close())

	for keys, want := range map[string]string{
		key("b"): "encrypted with key a, which is not among those given",
		"":       "encrypted with key a, but no keys are given",
		"a:" + strings.TrimPrefix(key("b"), "b:"): "wrong key a, or it was changed",
	} {
		settings.Keys = keys
		checked := checkUnread(t, settings)
		if len(checked) != 1 || !strings.HasSuffix(checked[0], want) || !strings.Contains(checked[0], "151 of them") || strings.Contains(checked[0], secret) {
			t.Errorf("%s: problems %q", want, checked)
		}
		_, err := settings.Open(t.Context())
		if !errors.Is(err, task.ErrUnreadable) || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: opened: %v", want, err)
		}
	}

	settings.Keys = key("b") + "," + key("a")
	if checked := checkUnread(t, settings); len(checked) > 0 {
		t.Errorf("with both keys: %q", checked)
	}
	s, err = settings.Open(t.Context())
	must(t, err)
	must(t, s.Unwrap().PutRecord(t.Context(), gatestore.Record{Name: "session/plain", Version: 1, Value: []byte(secret)}))
	must(t, s.Close())
	if checked := checkUnread(t, settings); len(checked) > 0 { // a gate that starts deletes it
		t.Errorf("with a record that is not encrypted: %q", checked)
	}
	open(t, settings)
}

// checkUnread checks a store without verifying first that it can be read.
func checkUnread(t *testing.T, settings storage.Settings) (problems []string) {
	t.Helper()
	s, err := settings.OpenUnverified(t.Context())
	must(t, err)
	_, problems = health(t, s)
	must(t, s.Close())
	return problems
}
