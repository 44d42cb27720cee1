// HandOverStock.exe INBOX_DB MIRROR_DB EXTERNAL_ID QTY BRANCH: one count, and what became of it.
// mcs -r:System.Data -r:Mono.Data.Sqlite HandOverStock.cs
using System;
using System.Threading;
using Mono.Data.Sqlite;

static class HandOverStock {
    static int Main(string[] args) {
        string reference = "count-" + Guid.NewGuid();    // Finds the answer; any text that is yours.
        try {
            using (var db = new SqliteConnection("Data Source=" + args[0] + ";Journal Mode=Default;Default Timeout=5")) {
                db.Open();
                using (var pragma = new SqliteCommand("PRAGMA synchronous = EXTRA", db))
                    pragma.ExecuteNonQuery();            // Survives a power cut. Before SQLite 3.12: FULL.
                using (var insert = new SqliteCommand(
                    @"INSERT INTO stock_changes (external_id, qty, subsidiary_external_id, reference)
                      VALUES (@id, @qty, @branch, @reference)", db)) {
                    insert.Parameters.AddWithValue("@id", args[2]);
                    insert.Parameters.AddWithValue("@qty", args[3]);
                    insert.Parameters.AddWithValue("@branch", args[4]);
                    insert.Parameters.AddWithValue("@reference", reference);
                    insert.ExecuteNonQuery();
                }
            }
        } catch (SqliteException error) {                // "CHECK constraint failed: qty must be a number …"
            Console.Error.WriteLine("Not handed over: " + error.Message);
            return 1;
        }

        const string READ_ONLY = ";Read Only=True;Journal Mode=Default;Default Timeout=5";
        using (var db = new SqliteConnection("Data Source=" + args[1] + READ_ONLY)) {
            db.Open();
            using (var look = new SqliteCommand("SELECT state, message FROM outbox WHERE reference = @reference", db)) {
                look.Parameters.AddWithValue("@reference", reference);
                for (int i = 0; i < 60; i++, Thread.Sleep(500))
                    using (var row = look.ExecuteReader()) {
                        string state = row.Read() ? row.GetString(0) : "";
                        if (state == "done") {
                            Console.WriteLine("done");
                            return 0;
                        }
                        if (state == "rejected") {
                            Console.Error.WriteLine("rejected: " + row["message"]);
                            return 1;
                        }
                    }
            }
        }
        Console.WriteLine("It is kept, and sent unless a person holds it or a later count took its place.");
        return 0;
    }
}
