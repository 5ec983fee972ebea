package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxWords is how many words the documentation may have, without the changelog.
const maxWords = 32_900

// TestDocumentationIsShort counts the words of all pages. A page that grows needs another that shrinks.
func TestDocumentationIsShort(t *testing.T) {
	words := 0
	for _, pattern := range []string{"../*.md", "*.md", "deploy/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if filepath.Base(file) == "CHANGELOG.md" {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			words += len(strings.Fields(strings.ReplaceAll(string(text), "|", " "))) // the lines of tables are not words
		}
	}
	if words > maxWords {
		t.Errorf("the documentation has %d words; want at most %d", words, maxWords)
	}
}
