package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest  = regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)`")
	threatLine = regexp.MustCompile(`(?m)^\| .+ \|$`)
)

// TestThreatsHaveTests demands that every test that the security model names exists,
// and that every threat in it names one.
func TestThreatsHaveTests(t *testing.T) {
	text, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, attackers, _ := strings.Cut(string(text), "\n## Attackers\n")
	attackers, _, found := strings.Cut(attackers, "\n## ")
	if !found {
		t.Fatal("there is no section about attackers")
	}
	threats := 0
	for _, line := range threatLine.FindAllString(attackers, -1) {
		if strings.HasPrefix(line, "| it tries to |") || strings.HasPrefix(line, "| they try to |") || strings.HasPrefix(line, "| what was stolen |") {
			continue
		}
		threats++
		tests := namedTest.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test shows this: %s", line)
		}
		for _, m := range tests {
			if !hasTest(t, m[1], m[2]) {
				t.Errorf("there is no test %s in %s", m[2], m[1])
			}
		}
	}
	if threats < 30 {
		t.Errorf("only %d threats were found; has the page another form?", threats)
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
