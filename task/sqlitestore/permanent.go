package sqlitestore

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// Permanent reports whether an error of [Open] stays until the settings, the file or its
// permissions are changed. Other errors, such as a full disk, may be temporary.
func Permanent(err error) bool {
	return slices.ContainsFunc([]error{
		ErrInUse, ErrSchema, ErrDamaged,
		fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR,
	}, func(known error) bool { return errors.Is(err, known) })
}
