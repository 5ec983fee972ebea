package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPicture makes the picture from a run of the demo, and compares it with the one
// in the documentation, without what differs each time.
func TestPicture(t *testing.T) {
	t.Parallel()
	program, file := filepath.Join(t.TempDir(), "thoughtgate"), filepath.Join(t.TempDir(), "demo.svg")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/thoughtgate").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run(t.Context(), []string{program, file}); err != nil {
		t.Fatal(err)
	}
	made, kept := picture(t, file), picture(t, "../demo.svg")
	if made != kept {
		t.Errorf("the demo looks otherwise now; run make picture.\nnow: %s\ndocs/demo.svg: %s", made, kept)
	}
	for _, want := range []string{"Waiting for approval", "approved by operator", "deleted /notes/todo.txt"} {
		if !strings.Contains(made, want) {
			t.Errorf("the picture does not show %q", want)
		}
	}
}

var changing = regexp.MustCompile(`tg_[0-9a-zA-Z-]+|--shown [0-9a-f]+|\d+m?\d*s (left|ago)`)

// picture returns the text in a picture, which must be a small one.
func picture(t *testing.T, file string) string {
	t.Helper()
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(svg) > 16<<10 {
		t.Errorf("%s has %d bytes", file, len(svg))
	}
	var text strings.Builder
	for tokens := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			return changing.ReplaceAllString(text.String(), "…")
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
		}
	}
}
