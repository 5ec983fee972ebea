package sqlitestore

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// changeRecords has the writer run a statement.
func (s *Store) changeRecords(ctx context.Context, a task.Action, made sqlcore.Statement) (int, error) {
	if err := s.db.Usable(ctx, a); err != nil {
		return 0, err
	}
	c := &change{
		size: task.MaxRecordValue,
		do: func(ctx context.Context, tx *session) (outcome, error) {
			result, err := tx.exec(ctx, made.Query, made.Args...)
			if err != nil {
				return outcome{}, err
			}
			n, err := result.RowsAffected()
			return outcome{records: int(n)}, err
		},
	}
	if err := s.write(ctx, a, c); err != nil {
		return 0, err
	}
	return c.result.records, nil
}
