package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryStoreVersionIsDescribed demands a row in the notes for upgrades for every
// version of the store.
func TestEveryStoreVersionIsDescribed(t *testing.T) {
	text, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	migrations, err := filepath.Glob("../task/sqlitestore/migrations/*.sql")
	if err != nil || len(migrations) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for n := range migrations {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %d | ", n+1)) {
			t.Errorf("the section Upgrade does not describe version %d of the store", n+1)
		}
	}
}
