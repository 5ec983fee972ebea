package sqlcore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A database without numbered parameters gets each argument where it is used, also one that is
// used twice, and its own way to replace a row.
func TestDialectOfPositionalParameters(t *testing.T) {
	d := Dialect{Positional: true, Upsert: func(key, columns []string) string {
		return "ON DUPLICATE KEY UPDATE " + strings.Join(append(key, columns...), " ")
	}}
	text, args := d.Text(updateRecord, 2, nil, "value", "name")
	if diff := cmp.Diff("UPDATE records SET version = ?, expires = ?, value = ? WHERE name = ? AND version + 1 = ?", text); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]any{2, nil, "value", "name", 2}, args); diff != "" {
		t.Error(diff)
	}
	if got, want := d.PutChunk(), "INSERT INTO chunks (task, n, data) VALUES ($1, $2, $3) ON DUPLICATE KEY UPDATE task n data"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got, _ := d.Text("SELECT $12 FROM tasks WHERE id = '$'", 1); got != "SELECT $12 FROM tasks WHERE id = '$'" {
		t.Errorf("a parameter without an argument became %s", got)
	}
}
