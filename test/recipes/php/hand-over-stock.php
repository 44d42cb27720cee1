<?php
// php hand-over-stock.php INBOX_DB MIRROR_DB EXTERNAL_ID QTY BRANCH: one count, and what became of it.
[, $inbox, $mirror, $externalId, $qty, $branch] = $argv;
$reference = uniqid('count-', true);                     // Finds the answer; any text that is yours.

try {
    $db = new SQLite3($inbox, SQLITE3_OPEN_READWRITE);
    $db->enableExceptions(true);
    $db->busyTimeout(5000);                              // tillsync holds the file for milliseconds.
    $db->exec('PRAGMA synchronous = EXTRA');             // Survives a power cut. Before SQLite 3.12: FULL.
    $insert = $db->prepare('INSERT INTO stock_changes (external_id, qty, subsidiary_external_id, reference)
                            VALUES (?, ?, ?, ?)');
    foreach ([$externalId, $qty, $branch, $reference] as $i => $value) $insert->bindValue($i + 1, $value);
    $insert->execute();
    $db->close();
} catch (Exception $error) {                             // "CHECK constraint failed: qty must be a number …"
    fwrite(STDERR, "Not handed over: {$error->getMessage()}\n");
    exit(1);
}

$db = new SQLite3($mirror, SQLITE3_OPEN_READONLY);
$db->enableExceptions(true);
$db->busyTimeout(5000);
for ($i = 0; $i < 60; $i++, usleep(500_000)) {
    $row = $db->querySingle("SELECT state, message FROM outbox WHERE reference = '$reference'", true);
    if (($row['state'] ?? '') === 'done') exit("done\n");
    if (($row['state'] ?? '') === 'rejected') {
        fwrite(STDERR, "rejected: {$row['message']}\n");
        exit(1);
    }
}
echo "It is kept, and sent unless a person holds it or a later count took its place.\n";
