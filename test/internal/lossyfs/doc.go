// Package lossyfs is a file system in memory that loses what was not synced when its power is cut. It is for tests of programs that must not
// lose anything: they write through a FUSE mount, and the test calls Cut, kills them, and calls Restore.
//
// What a cut leaves:
//
//   - of a file, its content, size and attributes at its last fsync or fdatasync, and what Damage lets survive of later writes;
//   - of a folder, its entries at its last fsync. Creations, renames, links and removals are kept in a journal; they survive in their order, and
//     each survives completely or not at all. A rename between two folders becomes durable when one of them is synced.
//
// Config.Strict decides about a file that is synced in a folder that is not. POSIX promises nothing about its name, and a strict file system
// loses it. ext4 and XFS keep it with all earlier changes of names, and so does a file system that is not strict.
package lossyfs
