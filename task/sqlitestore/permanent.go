package sqlitestore

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// Permanent reports whether an error of [Open] stays until somebody changes the
// settings, the file or the rights to it. Other errors may pass, such as that of a
// disk that is full.
func Permanent(err error) bool {
	return slices.ContainsFunc([]error{
		ErrInUse, ErrSchema, ErrDamaged,
		fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR,
	}, func(known error) bool { return errors.Is(err, known) })
}
