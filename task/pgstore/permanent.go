package pgstore

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Permanent reports whether an error of [Open] stays until the settings, the database or its
// permissions are changed. Other errors may be temporary, for example when a server is starting
// or a disk is full.
func Permanent(err error) bool {
	if errors.Is(err, ErrSchema) {
		return true
	}
	if _, malformed := errors.AsType[*pgconn.ParseConfigError](err); malformed {
		return true
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.ContainsFunc([]string{
		"28",    // unknown user, or wrong password
		"3D000", // unknown database
		"3F000", // unknown schema
		"42501", // no permission to create tables
	}, func(code string) bool { return strings.HasPrefix(refused.Code, code) })
}
