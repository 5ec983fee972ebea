package localdesk

import "errors"

// ErrLocked reports that another process has locked a file. A lock ends with its
// process, also if that was killed.
var ErrLocked = errors.New("locked by another process")
