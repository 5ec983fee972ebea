// Package action has the names of the events that happen to a task and of the methods of a
// store. Errors and the rules of package lifecycle use them.
package action
