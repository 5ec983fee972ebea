// Package clientconfig changes the configuration files of MCP clients so that they start their
// servers through thoughtgate wrap, and undoes that. It changes only the values that it must and
// keeps every other byte of a file.
//
//	client, err := clientconfig.Find("cursor")
//	change, err := files.Wrap(client, file, clientconfig.WrapOptions{Command: "thoughtgate"})
//	restoration, err := files.Undo(record)
package clientconfig
