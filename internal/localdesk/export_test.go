package localdesk

// LockFile is for tests that play another process.
var LockFile = lockFile
