package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

func inFileOf(b *testing.B) gatestore.Store {
	return open(b, sqlitestore.Options{File: filepath.Join(b.TempDir(), "tasks.db")})
}

func BenchmarkSQLite(b *testing.B) {
	sqltest.Measure(b, inFileOf)
	b.Run("wake", func(b *testing.B) {
		s := inFileOf(b) // there are no other replicas
		sqltest.BenchmarkWake(b, s, s)
	})
}

func BenchmarkGrowth(b *testing.B) { gatestoretest.BenchmarkGrowth(b, inFileOf(b)) }
