// Package clientconfig changes the configuration files of MCP clients, so that
// they start their servers through thoughtgate wrap. It changes the values that
// it must, and leaves every other byte of a file as it is. It does not know how
// a server is wrapped, only how that is written down.
package clientconfig
