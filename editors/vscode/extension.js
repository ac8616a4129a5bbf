// Starts ktir-lsp and hands it the files of the language; all else is the server's.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("ktir").get("server");
  client = new LanguageClient("ktir", "KTIR", { command }, { documentSelector: [{ language: "ktir" }] });
  return client.start();
};

exports.deactivate = () => client?.stop();
