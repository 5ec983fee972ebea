package sqlitestore_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

func inFile(t *testing.T) *sqltest.Place {
	t.Helper()
	o := inDir(t)
	return &sqltest.Place{
		Versions: sqlitestore.Migrations(), DB: raw(t, o), Open: func(t *testing.T) gatestore.Store { return open(t, o) },
		Tables: "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
		Shape:  "SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY type, name",
		Bytes:  "X'%x'",
	}
}

func TestVersions(t *testing.T) { sqltest.RunVersions(t, inFile) }

func TestOwedCancellationsOfOlderVersions(t *testing.T) {
	sqltest.RunOwedCancellationsOfOlderVersions(t, inFile)
}

func TestOutlinesWithoutDocuments(t *testing.T) { sqltest.RunOutlinesWithoutDocuments(t, inFile) }

func TestBytesOfEarlierVersion(t *testing.T) { sqltest.RunBytesOfEarlierVersion(t, inFile) }

func TestOutlinesOfEarlierVersion(t *testing.T) { sqltest.RunOutlinesOfEarlierVersion(t, inFile) }
