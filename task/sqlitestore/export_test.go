package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// On returns o with another file system.
func (o Options) On(vfs string) Options {
	o.vfs = vfs
	return o
}

// Outside returns o with every chunk of an answer in a file.
func (o Options) Outside() Options {
	o.allInFiles = true
	return o
}

// OnFlush replaces the flush of a file with an answer by f.
func (s *Store) OnFlush(f func(*os.File) error) { s.results.flush = f }

// ResultName returns the name of the file with the answer to a task.
func ResultName(id task.ID) string { return resultName(id) }

// Migrate runs the given migrations on a SQLite database.
func Migrate(ctx context.Context, db *sql.DB, files fs.FS) error {
	_, err := migrate(ctx, db, files)
	return err
}

// Statements returns the constant statements on tasks, by their purpose.
func Statements() map[string]string {
	mine, _ := sqlcore.Reclaim("owner:ann")
	all, _ := sqlcore.Reclaim("")
	return map[string]string{
		"sweep": fmt.Sprintf(deleteTasks, sqlcore.Swept, 100), "reclaim": fmt.Sprintf(deleteTasks, mine, 100), "reclaim any": fmt.Sprintf(deleteTasks, all, 100),
		"get": sqlcore.GetTask, "visit": sqlcore.NextDocuments, "get chunk": sqlcore.GetChunk, "find chunk": findChunk, "drop chunk": dropChunk, "overdue": sqlcore.OverdueTasks,
		"count all": countAll, "count owner": countOwner, "sum account": sumAccount, "count rooms": countGroups, "find same": findSame, "find": sqlcore.FindTask,
		"update":  updateTask,
		"journal": sqlcore.JournalPage, "story": sqlcore.JournalOfTask, "trim": discardEntries,
	}
}

// Migrations returns the names of the migrations, in their order.
func Migrations() []string {
	files, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".sql")
	}
	return files
}

// Take uses space for a moment, in a change for an action.
func (s *Store) Take(ctx context.Context, a action.Name, size int) error {
	return s.write(ctx, a, &change{do: func(ctx context.Context, tx *session) error {
		_, err := tx.exec(ctx, "INSERT INTO schema_version (version, applied_at) VALUES (-1, zeroblob($1))", size)
		if err == nil {
			_, err = tx.exec(ctx, "DELETE FROM schema_version WHERE version = -1")
		}
		return err
	}})
}
