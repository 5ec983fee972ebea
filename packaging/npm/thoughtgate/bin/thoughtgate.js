#!/usr/bin/env node
// Runs the program for this platform, which is in a package of its own, with the
// same arguments, standard input and output, and ends as it ends.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;

function program() {
  const name = process.platform === "win32" ? "thoughtgate.exe" : "thoughtgate";
  try {
    return require.resolve(`@thoughtgate/${platform}/bin/${name}`);
  } catch {
    console.error(
      `thoughtgate: the package @thoughtgate/${platform} is not installed. ` +
        "Either this platform is not supported, or npm was told to omit optional dependencies."
    );
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (err) => {
  console.error(`thoughtgate: ${err.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal === null ? code : 128 + constants.signals[signal]);
});
