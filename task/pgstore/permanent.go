package pgstore

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Permanent reports whether an error of [Open] stays until somebody changes the
// settings, the database or the rights to it. Other errors may pass: a server that
// is starting, a disk that is full.
func Permanent(err error) bool {
	if errors.Is(err, ErrSchema) {
		return true
	}
	if _, malformed := errors.AsType[*pgconn.ParseConfigError](err); malformed {
		return true
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.ContainsFunc([]string{
		"28",    // no such user, or a wrong password
		"3D000", // no such database
		"3F000", // no such schema
		"42501", // no right to make tables
	}, func(code string) bool { return strings.HasPrefix(refused.Code, code) })
}
