// Package storekit has helpers for users and authors of stores. Users add a task and learn
// whether it was added ([Create]), wait for changes ([Wait], [WatchChanges]), and read and
// write large answers ([WriteResult], [OpenResult]). Authors get the stored form of a task
// ([Encode], [DecodeAs]) and the notification of watchers ([Notifier]).
package storekit
