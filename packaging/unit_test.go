package packaging_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// TestUnit has systemd check the unit, and rate what the service could do if it
// were taken over. Ten is everything.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := testenv.SystemdAnalyze()
	if !testenv.Available(t, err) {
		return
	}
	text, err := os.ReadFile("thoughtgate.service")
	if err != nil {
		t.Fatal(err)
	}
	// systemd wants the programs and pages that a unit names to exist.
	unit := filepath.Join(t.TempDir(), "thoughtgate.service")
	adapted := strings.NewReplacer("/usr/bin/thoughtgate", program(t), "man:thoughtgate(1) ", "").Replace(string(text))
	if err := os.WriteFile(unit, []byte(adapted), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := output(t, "", nil, analyze, "verify", "--man=no", unit); strings.TrimSpace(said) != "" {
		t.Errorf("verify: %s", said)
	}
	const worst = "20" // exposure level 2.0; systemd calls this OK
	report := output(t, "", nil, analyze, "security", "--offline=yes", "--threshold="+worst, unit)
	for line := range strings.Lines(report) {
		if strings.Contains(line, "Overall exposure level") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
