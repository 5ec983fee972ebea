package sqlitestore

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// On returns o with another file system under the database.
func (o Options) On(vfs string) Options {
	o.vfs = vfs
	return o
}

// Outside returns o with every chunk of an answer in a file.
func (o Options) Outside() Options {
	o.outside = true
	return o
}

// OnFlush has f called in the place of flushing a file with an answer.
func (s *Store) OnFlush(f func(*os.File) error) { s.results.flush = f }

// ResultName returns the name of the file with the answer to a task.
func ResultName(id task.ID) string { return resultName(id) }

// Migrate runs other files than those of this package on a SQLite database.
func Migrate(ctx context.Context, db *sql.DB, files fs.FS) error {
	_, err := migrate(ctx, db, files)
	return err
}

// Statements returns every statement on tasks that is always the same, by
// what it is for.
func Statements() map[string]string {
	return map[string]string{
		"get": sqlcore.GetTask, "visit": sqlcore.NextDocuments, "get chunk": sqlcore.GetChunk, "find chunk": findChunk, "drop chunk": dropChunk, "overdue": sqlcore.OverdueTasks,
		"count all": countAll, "count owner": countOwner, "count rooms": sqlcore.CountRooms, "find same": findSame, "find": sqlcore.FindTask,
		"update": updateTask, "sweep": sweepTasks,
		"journal": sqlcore.JournalPage, "story": sqlcore.JournalStory, "trim": discardEntries,
	}
}

// Migrations returns the names of the files that make the schema, in the order in
// which they are run.
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

// Take takes room for a moment, in a change for some action.
func (s *Store) Take(ctx context.Context, a task.Action, size int) error {
	return s.write(ctx, a, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		_, err := tx.exec(ctx, "INSERT INTO schema_version (version, applied_at) VALUES (-1, zeroblob($1))", size)
		if err == nil {
			_, err = tx.exec(ctx, "DELETE FROM schema_version WHERE version = -1")
		}
		return outcome{}, err
	}})
}
