// till: books online orders from the mirror, hands over the counts and acknowledges by the inbox, all in SQL.
// fpc till.pas        The statements are the same with FireDAC. Its ledger is till.db in TILL_DIRECTORY.
program till;
{$mode objfpc}{$H+}
uses SysUtils, Classes, DateUtils, sqlite3dyn, ctypes;

type
  TRow = array of string;                                // NULL is ''.
  TRows = array of TRow;

const
  READ_ONLY = 1; READ_WRITE = 2; READ_WRITE_CREATE = 6;  // Of sqlite3_open_v2.
  OWN_SKU = 'SELECT CASE count(*) WHEN 1 THEN min(sku) END FROM stock WHERE external_id = ?';
  TAKES_NOTHING = ' pending payment-pending cancel refund payment-canceled ';

var
  Ledger: psqlite3;

function Env(const Name: string): string;
begin
  Result := GetEnvironmentVariable(Name);
end;

procedure Fail(Db: psqlite3);
begin
  raise Exception.Create(string(sqlite3_errmsg(Db)));
end;

function Connect(const FileName: string; Flags: cint): psqlite3;
begin
  if sqlite3_open_v2(PChar(FileName), @Result, Flags, nil) <> SQLITE_OK then
  begin
    sqlite3_close(Result);
    raise Exception.Create('cannot open ' + FileName);
  end;
  sqlite3_busy_timeout(Result, 5000);                    // tillsync holds the files for milliseconds.
end;

function Run(Db: psqlite3; const Sql: string; const Values: array of string): TRows;
var
  Statement: psqlite3_stmt;
  I, Answer: Integer;
begin
  SetLength(Result, 0);
  if sqlite3_prepare_v2(Db, PChar(Sql), -1, @Statement, nil) <> SQLITE_OK then Fail(Db);
  try
    for I := 0 to High(Values) do
      sqlite3_bind_text(Statement, I + 1, PChar(Values[I]), Length(Values[I]), sqlite3_destructor_type(-1));
    repeat
      Answer := sqlite3_step(Statement);
      if (Answer <> SQLITE_ROW) and (Answer <> SQLITE_DONE) then Fail(Db);
      if Answer = SQLITE_ROW then
      begin
        SetLength(Result, Length(Result) + 1);
        SetLength(Result[High(Result)], sqlite3_column_count(Statement));
        for I := 0 to High(Result[High(Result)]) do
          Result[High(Result)][I] := string(PChar(sqlite3_column_text(Statement, I)));
      end;
    until Answer = SQLITE_DONE;
  finally
    sqlite3_finalize(Statement);
  end;
end;

function RowsOf(const Name: string): TRows;
var
  Text: TStringStream;
  Lines: TStringList;
  I: Integer;
begin
  Text := TStringStream.Create('');
  Lines := TStringList.Create;
  try
    Text.LoadFromFile(Env(Name));
    Lines.Text := Copy(Text.DataString, 1, LastDelimiter(#10, Text.DataString));  // No line that is still being written.
    SetLength(Result, Lines.Count);
    for I := 0 to Lines.Count - 1 do Result[I] := TRow(Lines[I].Split([#9]));
  finally
    Lines.Free;
    Text.Free;
  end;
end;

procedure Append(const Line: string);
var
  Report: TFileStream;
begin
  Report := TFileStream.Create(Env('TILL_REPORT'), fmOpenReadWrite or fmShareDenyNone);
  try
    Report.Seek(0, soFromEnd);
    Report.WriteBuffer(PChar(Line + #10)^, Length(Line) + 1);
  finally
    Report.Free;
  end;
end;

function Place(const Name: string): string;
begin
  Result := Run(Ledger, 'SELECT value FROM place WHERE name = ?', [Name])[0][0];
end;

// What the order took is given back, what it takes now is taken, and the place noted, in one transaction.
procedure Book(Mirror: psqlite3; const Event: TRow);
var
  Row: TRow;
  Sku: string;
begin
  for Row in Run(Ledger, 'SELECT sku, qty FROM taken WHERE order_id = ?', [Event[1]]) do
    Run(Ledger, 'UPDATE stock SET qty = qty + ? WHERE sku = ?', [Row[1], Row[0]]);
  Run(Ledger, 'DELETE FROM taken WHERE order_id = ?', [Event[1]]);
  if (Event[3] = Env('TILL_STORE')) and ((Event[2] = '') or (Pos(' ' + Event[2] + ' ', TAKES_NOTHING) = 0)) then
  begin
    for Row in Run(Mirror, 'SELECT sku, product_external_id, coalesce(quantity, 0) FROM order_items' +
      ' WHERE order_id = ?', [Event[1]]) do
    begin
      Sku := Row[0];
      if (Sku = '') and (Row[1] <> '') then Sku := Run(Ledger, OWN_SKU, [Row[1]])[0][0];
      Run(Ledger, 'UPDATE stock SET qty = qty - ? WHERE sku = ?', [Row[2], Sku]);
      Run(Ledger, 'INSERT INTO taken VALUES (?, ?, ?)', [Event[1], Sku, Row[2]]);
    end;
    Run(Ledger, 'INSERT OR IGNORE INTO tickets (order_id) VALUES (?)', [Event[1]]);
    Run(Ledger, 'UPDATE tickets SET total = ?, due = ? WHERE order_id = ?', [Event[4], Event[5], Event[1]]);
    if Length(Run(Ledger, 'SELECT 1 FROM taken WHERE order_id = ? AND sku = ''''', [Event[1]])) > 0 then
      WriteLn(StdErr, Event[1], ' is not acknowledged, a person has to look: it has an article that is not known')
    else
      Run(Ledger, 'INSERT OR REPLACE INTO owed VALUES (?, ?)', [Event[1], Event[0]]);
  end
  else
    Run(Ledger, 'DELETE FROM tickets WHERE order_id = ?', [Event[1]]);
  Run(Ledger, 'UPDATE place SET value = ? WHERE name = ''seq''', [Event[0]]);
end;

// A page of events with their orders and items, of one moment; false: there was none.
// A feed that ends below the till's place was made anew, and is read from its beginning.
function BookPage: Boolean;
var
  Mirror: psqlite3;
  Event: TRow;
  Page: TRows;
begin
  Mirror := Connect(Env('TILL_MIRROR'), READ_ONLY);
  try
    Run(Mirror, 'BEGIN', []);
    Page := Run(Mirror, 'SELECT e.seq, e.order_id, o.status, o.store_external_id, o.amount_to_pay,' +
      ' CASE WHEN o.is_scheduled THEN o.scheduled_for END FROM order_events e LEFT JOIN orders o USING (order_id)' +
      ' WHERE e.seq > (SELECT CASE WHEN seq < CAST(? AS INTEGER) THEN 0 ELSE CAST(? AS INTEGER) END' +
      ' FROM sqlite_sequence WHERE name = ''order_events'') ORDER BY e.seq LIMIT 100', [Place('seq'), Place('seq')]);
    Run(Ledger, 'BEGIN IMMEDIATE', []);
    for Event in Page do Book(Mirror, Event);
    Run(Ledger, 'COMMIT', []);
    Result := Length(Page) > 0;
  finally
    sqlite3_close(Mirror);                               // No read stays open.
  end;
end;

procedure Sell;
var
  Sale: TRow;
begin
  for Sale in RowsOf('TILL_SALES') do
    if (Length(Sale) = 3) and (StrToInt64(Sale[0]) > StrToInt64(Place('sale'))) then
    begin
      Run(Ledger, 'BEGIN IMMEDIATE', []);
      Run(Ledger, 'UPDATE stock SET qty = qty - ? WHERE sku = ?', [Sale[2], Sale[1]]);
      Run(Ledger, 'UPDATE place SET value = ? WHERE name = ''sale''', [Sale[0]]);
      Run(Ledger, 'COMMIT', []);
    end;
end;

// Counts first, then acknowledgements, in one transaction on the inbox; the ledger strikes them off after it.
procedure HandOver;
var
  Inbox: psqlite3;
  Owed, Counts: TRows;
  Row: TRow;
begin
  Owed := Run(Ledger, 'SELECT order_id, seq FROM owed', []);
  Counts := Run(Ledger, 'SELECT max(qty, 0), external_id FROM stock WHERE max(qty, 0) <> told', []);
  if Length(Owed) + Length(Counts) = 0 then Exit;
  Inbox := Connect(Env('TILL_INBOX'), READ_WRITE);
  try
    Run(Inbox, 'PRAGMA synchronous = EXTRA', []);        // Survives a power cut. Before SQLite 3.12: FULL.
    Run(Inbox, 'BEGIN IMMEDIATE', []);
    for Row in Counts do
      try
        Run(Inbox, 'INSERT INTO stock_changes (qty, external_id, subsidiary_external_id) VALUES (?, ?, ?)',
          [Row[0], Row[1], Env('TILL_STORE')]);
      except
        on Error: Exception do                           // The others go on.
        begin
          if sqlite3_errcode(Inbox) <> SQLITE_CONSTRAINT then raise;
          WriteLn(StdErr, 'refused, a person has to look: ', Row[1], ': ', Error.Message);
        end;
      end;
    for Row in Owed do Run(Inbox, 'INSERT INTO order_acks (order_id, seq) VALUES (?, ?)', [Row[0], Row[1]]);
    Run(Inbox, 'COMMIT', []);
  finally
    sqlite3_close(Inbox);                                // Takes back what is not committed.
  end;
  Run(Ledger, 'BEGIN IMMEDIATE', []);
  for Row in Counts do Run(Ledger, 'UPDATE stock SET told = ? WHERE external_id = ?', [Row[0], Row[1]]);
  for Row in Owed do
    Run(Ledger, 'DELETE FROM owed WHERE order_id = ? AND seq = CAST(? AS INTEGER)', [Row[0], Row[1]]);
  Run(Ledger, 'COMMIT', []);
end;

// The kitchen's printer: a ticket is booked at once, again when its total changes, and prepared when its time has come.
procedure PrintTickets;
var
  Row: TRow;
  Latest: string;
begin
  for Row in Run(Ledger, 'SELECT order_id, total FROM tickets WHERE booked IS NOT total', []) do
  begin
    Append('booked' + #9 + Row[0] + #9 + Row[1]);
    Run(Ledger, 'UPDATE tickets SET booked = ? WHERE order_id = ?', [Row[1], Row[0]]);
  end;
  Latest := FormatDateTime('yyyy-mm-dd"T"hh:nn:ss.zzz"Z"',
    IncSecond(LocalTimeToUniversal(Now), StrToIntDef(Env('TILL_LEAD'), 0)));  // Seconds before its time.
  for Row in Run(Ledger, 'SELECT order_id FROM tickets WHERE prepared = 0 AND due <= ?', [Latest]) do
  begin
    Append('prepare' + #9 + Row[0]);
    Run(Ledger, 'UPDATE tickets SET prepared = 1 WHERE order_id = ?', [Row[0]]);
  end;
end;

procedure Prepare;
var
  Sql: string;
  Rows: TRows;
  I: Integer;
begin
  Ledger := Connect(Env('TILL_DIRECTORY') + '/till.db', READ_WRITE_CREATE);
  for Sql in TStringArray.Create('PRAGMA synchronous = FULL',
    'CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL)',
    'CREATE TABLE IF NOT EXISTS taken (order_id TEXT, sku TEXT, qty REAL)',
    'CREATE TABLE IF NOT EXISTS tickets (order_id TEXT PRIMARY KEY, total TEXT, due TEXT, booked TEXT, prepared INTEGER DEFAULT 0)',
    'CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER)',
    'CREATE TABLE IF NOT EXISTS place (name TEXT PRIMARY KEY, value INTEGER)',
    'INSERT OR IGNORE INTO place VALUES (''seq'', 0), (''sale'', 0)') do Run(Ledger, Sql, []);
  Rows := RowsOf('TILL_ARTICLES');
  Run(Ledger, 'BEGIN IMMEDIATE', []);
  for I := 1 to High(Rows) do
    Run(Ledger, 'INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)', [Rows[I][0], Rows[I][1], Rows[I][3], Rows[I][3]]);
  Run(Ledger, 'COMMIT', []);
end;

begin
  SqliteDefaultLibrary := 'libsqlite3.so.0';
  InitialiseSQLite;
  Prepare;
  while True do
    try
      Sell;
      if not BookPage then Sleep(1000);
      PrintTickets;
      HandOver;
    except
      on Error: Exception do                             // Locked, or just made anew: what is owed stands in the ledger.
      begin
        WriteLn(StdErr, Error.Message);
        if sqlite3_get_autocommit(Ledger) = 0 then Run(Ledger, 'ROLLBACK', []);
        Sleep(1000);
      end;
    end;
end.
